"""A snapshot: the state after one step, copied to host memory so that training continues while it is written.

Tensors have canonical names: ``model.`` and ``optimizer.exp_avg.`` / ``optimizer.exp_avg_sq.`` before the weight's own.
The updater decides which rank has them, and in which number format: each rank's snapshot contains what its updater
writes. Apart from these, a resumed run needs only a few scalars, because the schedule, the data order and the random
numbers are functions of the step.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from trainwright.contracts.checkpoint import digest_of
from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.precision_spec import PrecisionSpec
from trainwright.contracts.run_spec import RunSpec
from trainwright_trainer.checkpoint.host_memory import HostMemory
from trainwright_trainer.data.position import START, DataPosition
from trainwright_trainer.optim.updater import Updater


@dataclass(frozen=True)
class StateSlice:
    """A slice of a tensor, in host memory."""

    name: str
    full_shape: tuple[int, ...]
    """Shape of the entire tensor."""

    offset: tuple[int, ...]
    tensor: Tensor
    scale: str | None
    """Name of the tensor of scales, as in ``StateTensor``."""


@dataclass(frozen=True)
class Snapshot:
    step: int
    slices: list[StateSlice]
    """What this rank writes; empty if other ranks write everything."""

    state: dict[str, Any]


def take_snapshot(updater: Updater, position: dict[str, Any], memory: HostMemory) -> Snapshot:
    """Copy this rank's part of the state to ``memory``, where it stays until the next snapshot; returns when
    copied.
    """
    state = updater.state()
    copies = memory.copy([stored.tensor for stored in state])
    slices = [
        StateSlice(stored.name, stored.box.full_shape, stored.box.offset, copy, stored.scale)
        for stored, copy in zip(state, copies, strict=True)
    ]
    return Snapshot(position["step"], slices, position | updater.scalars())


def training_position(step: int, spec: RunSpec, data_position: DataPosition = START) -> dict[str, Any]:
    """Where the training is after ``step``."""
    return {
        "step": step,
        "sequences": data_position.sequences_after(step, spec.batch.global_sequences),
        "tokens": data_position.tokens_after(step, spec.tokens_per_step),
        "seed": spec.seed,
    }


def config_digest(spec: RunSpec) -> str:
    """SHA-256 of the settings that determine the state and its position; a resumed run may change ranks, schedule and
    learning rate.
    """
    shaping = {
        "seed": spec.seed,
        "data": spec.data.model_dump(mode="json"),
        "model": used_fields(spec.model),
        "sequence_tokens": spec.batch.sequence_tokens,
        "global_sequences": spec.batch.global_sequences,
        "optimizer": spec.optimizer.kind,
        "precision": _formats(spec.precision),
    } | ({"document_mask": True} if spec.batch.document_mask else {})
    return digest_of(json.dumps(shaping, sort_keys=True).encode())


_FIRST_FIELDS = frozenset(
    {
        "layers",
        "width",
        "heads",
        "kv_heads",
        "head_size",
        "feed_forward",
        "rope_theta",
        "norm_epsilon",
        "tied_embeddings",
        "initializer_std",
    }
)
"""Fields of ``ModelSpec`` when the first checkpoints were written. This never changes."""


def used_fields(model: ModelSpec) -> dict[str, Any]:
    """``model`` without later fields that have their defaults, so that older checkpoints keep their digest."""
    later = {name: field for name, field in ModelSpec.model_fields.items() if name not in _FIRST_FIELDS}
    unused = {
        name
        for name, field in later.items()
        if getattr(model, name) == field.get_default(call_default_factory=True)
    }
    return model.model_dump(mode="json", exclude=unused)


def _formats(precision: PrecisionSpec) -> dict[str, str]:
    """The settings that decide the number formats of the state."""
    formats = {"kind": str(precision.kind)}
    if precision.fp8 is not None:
        formats |= {"level": str(precision.fp8.level), "moments": str(precision.fp8.moments)}
    return formats
