"""Reading the file in which a rank publishes its progress: any content gives progress or None."""

import random
from collections.abc import Callable

import pytest

from trainwright.contracts.parallelism_spec import Degrees
from trainwright.contracts.rank_progress import (
    ACTIVITIES,
    ACTIVITY_CELL,
    CELL_BYTES,
    FIRST_AXIS_CELL,
    MAGIC,
    MAGIC_CELL,
    PROGRESS_BYTES,
    SECTIONS_CELL,
    STEP_CELL,
    AxisName,
    RankActivity,
    RankProgress,
    lines_along,
    read_progress,
)


def content(**cells: int) -> bytes:
    numbers = memoryview(bytearray(PROGRESS_BYTES)).cast("Q")
    numbers[MAGIC_CELL], numbers[STEP_CELL] = MAGIC, 7
    for cell, value in cells.items():
        numbers[int(cell.removeprefix("cell"))] = value
    return numbers.tobytes()


def test_a_rank_that_has_just_started_is_at_its_step() -> None:
    assert read_progress(content()) == RankProgress(step=7, activity=RankActivity.STARTING, sections=0)


REFUSED: dict[str, Callable[[], bytes | None]] = {
    "no file": lambda: None,
    "empty": lambda: b"",
    "too short": lambda: content()[:-1],
    "too long": lambda: content() + b"\0",
    "another format": lambda: content(**{f"cell{MAGIC_CELL}": MAGIC + 1}),
    "a step that no run has": lambda: content(**{f"cell{STEP_CELL}": 2**40}),
    "an activity of a newer version": lambda: content(**{f"cell{ACTIVITY_CELL}": len(ACTIVITIES)}),
    "more sections than are storable": lambda: content(**{f"cell{SECTIONS_CELL}": 2**63}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_content_is_none(case: str) -> None:
    assert read_progress(REFUSED[case]()) is None


def test_an_axis_with_an_impossible_count_is_omitted() -> None:
    first, second = FIRST_AXIS_CELL, FIRST_AXIS_CELL + 4
    progress = read_progress(content(**{f"cell{first}": 2**63, f"cell{second}": 3, f"cell{second + 1}": 9}))
    assert progress is not None
    (axis,) = progress.axes
    assert (axis.axis, axis.entered, axis.left) == (AxisName.TENSOR, 3, 3)


def test_an_operation_of_a_newer_version_has_no_name() -> None:
    cells = bytearray(content(**{f"cell{FIRST_AXIS_CELL}": 2, f"cell{FIRST_AXIS_CELL + 1}": 1}))
    cells[(FIRST_AXIS_CELL + 2) * CELL_BYTES + 2] = 200
    progress = read_progress(bytes(cells))
    assert progress is not None
    assert progress.on(AxisName.WORLD).operation(2) is None
    assert progress.on(AxisName.WORLD).operation(1) == "all_reduce"


def test_any_content_can_be_read() -> None:
    drawn = random.Random(5)
    for _ in range(200):
        garbage = bytearray(drawn.randbytes(PROGRESS_BYTES))
        if drawn.random() < 0.5:
            garbage[:CELL_BYTES] = content()[:CELL_BYTES]
            garbage[CELL_BYTES : FIRST_AXIS_CELL * CELL_BYTES] = bytes((FIRST_AXIS_CELL - 1) * CELL_BYTES)
        progress = read_progress(bytes(garbage))
        assert progress is None or RankProgress.model_validate_json(progress.model_dump_json()) == progress


def test_every_axis_has_each_rank_in_one_group() -> None:
    degrees = Degrees(pipeline=2, replicas=2, shard=2, tensor=2)
    for axis in AxisName:
        lines = lines_along(axis, degrees)
        assert sorted(rank for line in lines for rank in line) == list(range(degrees.ranks)), axis
    assert lines_along(AxisName.TENSOR, degrees)[0] == (0, 1)
    assert lines_along(AxisName.DATA, degrees)[0] == (0, 2, 4, 6)
    assert lines_along(AxisName.PIPELINE, degrees)[0] == (0, 8)
