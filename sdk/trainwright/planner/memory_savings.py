"""The one field of a run's spec whose change makes its fullest rank fit into a memory, if one does."""

from __future__ import annotations

from typing import Any, NamedTuple

from pydantic import ValidationError

from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.training_spec import RecomputeKind
from trainwright.planner.plan import memory_needs

_CHANGES: tuple[tuple[str, str, Any], ...] = (
    ("batch", "micro_sequences", 1),
    ("memory", "recompute", RecomputeKind.SELECTIVE),
    ("memory", "recompute", RecomputeKind.FULL),
    ("parallelism", "zero_stage", 3),
)
"""They cost time or communication, and the run learns the same. The cheapest first."""


class MemorySaving(NamedTuple):
    """A change of one field, and what the fullest rank then needs."""

    field: str
    value: Any
    instead_of: Any
    rank_bytes: int


def find_saving(spec: RunSpec, cuda: bool, available_bytes: int) -> MemorySaving | None:
    """The first change with which the fullest rank of ``spec`` needs at most ``available_bytes``; None if no single one does."""
    given = spec.model_dump(mode="json")
    for section, field, value in _CHANGES:
        try:
            changed = RunSpec.model_validate({**given, section: {**given[section], field: value}})
        except ValidationError:  # the rest of the spec does not allow it
            continue
        needed = memory_needs(changed, cuda).rank_bytes
        if needed <= available_bytes:
            return MemorySaving(f"{section}.{field}", value, given[section][field], needed)
    return None
