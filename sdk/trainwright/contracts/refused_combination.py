"""Two choices of a run that exclude each other, and the sections of its spec that are checked for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainwright.contracts.optimizer_spec import OptimizerSpec
from trainwright.contracts.parallelism_spec import ParallelismSpec, ResourcesSpec
from trainwright.contracts.precision_spec import PrecisionSpec
from trainwright.contracts.training_spec import BatchSpec, MemorySpec

if TYPE_CHECKING:  # ``model_spec`` imports ``attention_parts``, which declare combinations
    from trainwright.contracts.model_spec import ModelSpec


@dataclass(frozen=True)
class Sections:
    """The sections of a RunSpec that a layout concerns."""

    model: ModelSpec
    batch: BatchSpec
    optimizer: OptimizerSpec
    precision: PrecisionSpec
    memory: MemorySpec
    parallelism: ParallelismSpec
    resources: ResourcesSpec


@dataclass(frozen=True)
class RefusedCombination:
    """Two choices that exclude each other."""

    choice: str
    """The choices as users write them, such as `parallelism.schedule zbv`."""

    field: str
    """Dotted path of the field that the error is reported at."""

    broken: Callable[[Sections], bool]
    value: Callable[[Sections], object]
    reason: str
    """Why they exclude each other, and what to do instead."""
