"""The benchmarks run, at toy size: what waits for a GPU must not meet its first error there."""

from pathlib import Path

import pytest

from tests.benchmarks import gpu, peers, table
from tests.benchmarks.results import RECORD, append, read, result
from tests.benchmarks.rows import ROWS, Mark
from tests.benchmarks.shapes import SHAPES, TOY

MEASURED_HERE = [row for row in ROWS if not row.name.startswith("peer-")]
BESIDE_OTHERS = [row for row in ROWS if row.name.startswith("peer-")]


@pytest.mark.parametrize("row", MEASURED_HERE, ids=lambda row: row.name)
def test_a_row_runs_dry_and_leaves_nothing(row: gpu.Row, tmp_path: Path) -> None:
    before = RECORD.read_bytes() if RECORD.exists() else None
    found = gpu.run_row(row, dry=True, record=tmp_path / "gpu.json")
    assert found is not None
    # MFU needs the peak of a GPU; everything else that is judged must be measured.
    judged = {mark.figure for mark in row.marks if "mfu" not in mark.figure}
    assert judged <= set(found.figures)
    assert not (tmp_path / "gpu.json").exists()
    assert (RECORD.read_bytes() if RECORD.exists() else None) == before


@pytest.mark.parametrize("row", BESIDE_OTHERS, ids=lambda row: row.name)
def test_a_trainer_that_is_missing_is_refused_with_the_remedy(
    row: gpu.Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = row.name.removeprefix("peer-")
    monkeypatch.setitem(peers.PACKAGES, name, {"no_such_module": "no-such-package"})
    assert gpu.main([row.name, "--dry-run", "--record", str(tmp_path / "gpu.json")]) == 1
    assert "not installed: pip install no-such-package" in capsys.readouterr().out


def test_a_process_of_a_trainer_tells_the_seconds_of_its_timed_steps(tmp_path: Path) -> None:
    request = peers.Request(
        model=TOY.model, vocabulary=TOY.vocabulary, batch=TOY.batch, warm_up=1, timed=2, folder=tmp_path
    )
    seconds = peers._in_a_process(peers.OURS, request)
    assert len(seconds) == 2
    assert all(one > 0 for one in seconds)


def test_shapes_have_the_parameters_of_their_names() -> None:
    billions = {name: shape.parameters / 1e9 for name, shape in SHAPES.items()}
    expected = {"1.3b": 1.35, "3b": 3.37, "7b": 6.74, "8b": 8.03, "peer": 1.53}
    assert billions == pytest.approx(expected, abs=0.01)
    assert all(shape.tokens_per_step >= 16_384 for name, shape in SHAPES.items() if name != "8b")


def test_results_are_kept_and_the_newest_stands_in_the_table(tmp_path: Path) -> None:
    record = tmp_path / "gpu.json"
    for ratio in (1.0, 1.2):
        append(result("capped", "make gpu ROW=capped", {"ratio": ratio, "cap_gb": 120}), record)
    assert [one.figures["ratio"] for one in read(record)] == [1.0, 1.2]
    lines = table.tables(read(record)).splitlines()
    (capped,) = (line for line in lines if line.startswith("| `capped`"))
    assert "| 1.2 (no) |" in capped
    assert "waits for a GPU" in next(line for line in lines if line.startswith("| `memory-7b`"))


def test_the_committed_table_is_fresh() -> None:
    assert table.PAGE.read_text() == table.page(), "run `python -m tests.benchmarks.table`"


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
def test_a_mark_judges(value: float, at_most: bool, reached: str) -> None:
    mark = Mark("ratio", 1.2, 1.1, at_most) if at_most else Mark("ratio", 1.1, 1.2)
    assert mark.reached(value) == reached
