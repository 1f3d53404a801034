"""A snapshot: the state after one step, copied to host memory so that training can go on while it is written.

Tensors carry canonical names: ``model.`` and ``optimizer.exp_avg.`` / ``optimizer.exp_avg_sq.`` before the weight's
own. Who holds them, in which number format and on which ranks, is the updater's affair: each rank's snapshot has what
its updater answers for. Everything else that resuming needs is a few numbers: the schedule, the order of the data and
the random numbers are functions of the step.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from trainwright.contracts.checkpoint import digest_of
from trainwright.contracts.precision_spec import PrecisionSpec
from trainwright.contracts.run_spec import RunSpec
from trainwright_trainer.checkpoint.host_memory import HostMemory
from trainwright_trainer.data.begun import START, Begun
from trainwright_trainer.updater import Updater


@dataclass(frozen=True)
class HeldPiece:
    """A slice of a tensor, in host memory."""

    name: str
    whole: tuple[int, ...]
    """Shape of the whole tensor."""

    start: tuple[int, ...]
    tensor: Tensor
    scale: str | None
    """As in ``StateTensor``."""


@dataclass(frozen=True)
class Snapshot:
    step: int
    pieces: list[HeldPiece]
    """What this rank answers for; none where others do."""

    state: dict[str, Any]


def take_snapshot(updater: Updater, position: dict[str, Any], memory: HostMemory) -> Snapshot:
    """Copy this rank's part of the state to ``memory``, where it lasts until the next one; returns when that is done."""
    state = updater.state()
    copies = memory.copies([held.tensor for held in state])
    pieces = [
        HeldPiece(held.name, held.box.whole, held.box.start, copy, held.scale)
        for held, copy in zip(state, copies, strict=True)
    ]
    return Snapshot(position["step"], pieces, position | updater.position())


def position(step: int, spec: RunSpec, begun: Begun = START) -> dict[str, Any]:
    """Where the training stands after ``step``."""
    return {
        "step": step,
        "sequences": begun.sequences_after(step, spec.batch.global_sequences),
        "tokens": begun.tokens_after(step, spec.tokens_per_step),
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
        "precision": _formats(spec.precision),
    }
    return digest_of(json.dumps(shaping, sort_keys=True).encode())


def _formats(precision: PrecisionSpec) -> dict[str, str]:
    """The choices that decide in which number formats the state is held."""
    formats = {"kind": str(precision.kind)}
    if precision.fp8 is not None:
        formats |= {"level": str(precision.fp8.level), "moments": str(precision.fp8.moments)}
    return formats
