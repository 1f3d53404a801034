"""A snapshot: the state after one step, copied to host memory so that training can go on while it is written.

Tensors carry canonical names: ``model.`` and ``optimizer.exp_avg.`` / ``optimizer.exp_avg_sq.`` before the weight's
own. Each is held as pieces of a whole; a replicated model has one piece a tensor, on rank 0, and a sharded one will
have the slices that its ranks hold. Everything else that resuming needs is the number of the step: the schedule, the
order of the data and the random numbers are functions of it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from trainwright.contracts.checkpoint import digest_of
from trainwright.contracts.run_spec import RunSpec

MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass(frozen=True)
class HeldPiece:
    """A slice of a tensor, in host memory."""

    name: str
    whole: tuple[int, ...]
    """Shape of the whole tensor."""

    start: tuple[int, ...]
    tensor: Tensor


@dataclass(frozen=True)
class Snapshot:
    step: int
    pieces: list[HeldPiece]
    state: dict[str, Any]


def take_snapshot(model: nn.Module, optimizer: AdamW, step: int, spec: RunSpec) -> Snapshot:
    """Copy weights and optimizer to host memory; returns when the copies are complete."""
    pieces = [_whole(name, tensor) for name, tensor in state_tensors(model, optimizer).items()]
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
    return Snapshot(step, pieces, position(step, spec))


def state_tensors(model: nn.Module, optimizer: AdamW) -> dict[str, Tensor]:
    """Every tensor of the state by its canonical name, where it lives."""
    weights = dict(model.named_parameters())
    found = {f"model.{name}": weight.detach() for name, weight in weights.items()}
    for moment in MOMENTS:
        found |= {
            f"optimizer.{moment}.{name}": optimizer.state[weight][moment] for name, weight in weights.items()
        }
    return found


def position(step: int, spec: RunSpec) -> dict[str, Any]:
    """Where the training stands after ``step``."""
    return {
        "step": step,
        "sequences": step * spec.batch.global_sequences,
        "tokens": step * spec.tokens_per_step,
        "seed": spec.seed,
    }


def config_digest(spec: RunSpec) -> str:
    """SHA-256 of what shapes the state and its position; ranks, schedule and learning rate may differ on resuming."""
    shaping = {
        "seed": spec.seed,
        "data": spec.data.model_dump(mode="json"),
        "model": spec.model.model_dump(mode="json"),
        "sequence_tokens": spec.batch.sequence_tokens,
        "global_sequences": spec.batch.global_sequences,
        "optimizer": spec.optimizer.kind,
    }
    return digest_of(json.dumps(shaping, sort_keys=True).encode())


def _whole(name: str, tensor: Tensor) -> HeldPiece:
    shape = tuple(tensor.shape)
    return HeldPiece(name, shape, (0,) * len(shape), _to_host(tensor))


def _to_host(tensor: Tensor) -> Tensor:
    if tensor.device.type == "cpu":
        return tensor.detach().clone(memory_format=torch.contiguous_format)
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return host.copy_(tensor.detach(), non_blocking=True)
