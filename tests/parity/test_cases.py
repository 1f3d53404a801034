"""The cells cover all combinations: any two kinds of parallelism, and any kind with each precision, occur in a
cell."""

from __future__ import annotations

from itertools import combinations, product

import pytest
from pydantic import ValidationError

from tests.parity.cases import CELLS, PRECISIONS, Cell
from tests.trainer.jobs import TINY
from trainwright.contracts.run_spec import RunSpec

SCHEDULES = ("1f1b", "interleaved", "interleaved_zero_bubble", "zbv")

KINDS: dict[str, dict[str, dict[str, object]]] = {
    "tensor": {"tensor 2": {"tensor": 2}},
    "schedule": {name: {"pipeline": 2, "schedule": name} for name in SCHEDULES},
    "ZeRO": {f"ZeRO {stage}": {"zero_stage": stage} for stage in (1, 2, 3)},
    "replicas": {"replicas of 2": {"zero_stage": 2, "shard": 2}},
    "engine": {"deepspeed": {"engine": "deepspeed", "zero_stage": 1}},
    "precision": {name: {} for name in PRECISIONS if name != "fp32"},
}
"""What a cell may have of each kind, and the section of its spec that sets it."""


def _has(cell: Cell, kind: str, name: str) -> bool:
    given = cell.parallelism
    if kind == "precision":
        return cell.precision == name
    if kind == "schedule":
        return int(given.get("pipeline", 1)) > 1 and given["schedule"] == name
    if kind == "ZeRO":
        return given.get("zero_stage", 0) == KINDS[kind][name]["zero_stage"]
    return all(given.get(key) == value for key, value in KINDS[kind][name].items() if key != "zero_stage")


PAIRS = [
    (one, other)
    for (kind, names), (other_kind, others) in combinations(KINDS.items(), 2)
    for one, other in product([(kind, name) for name in names], [(other_kind, name) for name in others])
    if {kind, other_kind} != {"ZeRO", "replicas"}
]


def _refused(one: tuple[str, str], other: tuple[str, str]) -> bool:
    """Whether the two exclude each other."""
    precision = next((name for kind, name in (one, other) if kind == "precision"), "fp32")
    laid = KINDS[one[0]][one[1]] | KINDS[other[0]][other[1]]
    if {one[0], other[0]} == {"ZeRO", "engine"}:
        laid |= KINDS["ZeRO"][one[1] if one[0] == "ZeRO" else other[1]]
    cell = Cell(8, laid, precision)
    spec = TINY | cell.spec | {"resources": {"device": "cpu", "slots_per_node": 8}}
    try:
        RunSpec.model_validate(spec)
    except ValidationError:
        return True
    return False


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair[0][1]} × {pair[1][1]}")
def test_any_two_that_can_be_combined_are(pair: tuple[tuple[str, str], tuple[str, str]]) -> None:
    met = [name for name, cell in CELLS.items() if all(_has(cell, *item) for item in pair)]
    assert bool(met) is not _refused(*pair)
