"""Results are recorded, judged by their marks, and shown in the table of the page."""

from pathlib import Path

import pytest

from tests.benchmarks.report import table
from tests.benchmarks.report.entries import at_least, at_most
from tests.benchmarks.report.results import append, read, result
from tests.benchmarks.trainer.gpu_rows import Mark


def test_results_are_appended_and_the_table_shows_the_newest(tmp_path: Path) -> None:
    record = tmp_path / "gpu.json"
    for ratio in (1.0, 1.2):
        append(result("capped-fp8", "make gpu ROW=capped-fp8", {"ratio": ratio, "cap_gb": 120}), record)
    assert [item.figures["ratio"] for item in read(record)] == [1.0, 1.2]
    lines = table.tables(read(record)).splitlines()
    (capped,) = (line for line in lines if line.startswith("| `capped-fp8`"))
    assert "| 1.2 (no) |" in capped
    assert "waits for a GPU" in next(line for line in lines if line.startswith("| `memory-7b`"))


def test_the_committed_table_is_up_to_date() -> None:
    assert table.main(["--check"]) == 0, "run `python -m tests.benchmarks.report.table`"


@pytest.mark.parametrize(
    ("value", "at_most", "reached"),
    [
        (1.3, False, "goal"),
        (1.15, False, "pass"),
        (1.0, False, "no"),
        (1.0, True, "goal"),
        (1.15, True, "pass"),
        (1.3, True, "no"),
    ],
)
def test_a_mark_judges_a_figure(value: float, at_most: bool, reached: str) -> None:
    mark = Mark("ratio", 1.2, 1.1, at_most) if at_most else Mark("ratio", 1.1, 1.2)
    assert mark.reached(value) == reached


def test_an_entry_is_judged_by_its_ratio() -> None:
    assert [at_most(ours, 2.0, "s", 0.6, 0.5).reached for ours in (1.0, 1.1, 1.3)] == ["goal", "pass", "no"]
    assert [at_least(ours, 2.0, "s", 0.5, 0.6).reached for ours in (1.3, 1.1, 0.9)] == ["goal", "pass", "no"]
