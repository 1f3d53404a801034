"""The fault table counts what it measures, and a row fails for a violation and for a defect that it does not catch."""

import json
import time
from pathlib import Path

import pytest

from tests.faults.rows import FaultRow, Measured, table, write


def measured_row(*, violated: bool = False, caught: bool | None = True) -> FaultRow:
    row = FaultRow(2, Measured())
    for number in range(row.count):
        with row.trial("a kill"):
            row.recovered(time.monotonic() - 2.0)
            assert not (violated and number == 1), "a step is missing"
    if caught is not None:
        with row.control():
            assert not caught
    return row


def test_a_row_that_held_is_counted(tmp_path: Path) -> None:
    row = measured_row()
    row.check()
    file = tmp_path / "faults.json"
    file.write_text(json.dumps({"F9": {"n": 1}}))
    write({"F10": row.measured}, file)
    written = json.loads(file.read_text())
    assert list(written) == ["F9", "F10"], "earlier rows stay"
    assert written["F10"]["p50_seconds"] == pytest.approx(2.0, abs=0.5)
    assert (written["F10"]["n"], written["F10"]["violations"], written["F10"]["control_caught"]) == (
        2,
        0,
        True,
    )


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (measured_row(violated=True), "a kill: a step is missing"),
        (measured_row(caught=None), "the row has no negative control"),
        (measured_row(caught=False), "an injected defect was not caught"),
    ],
)
def test_a_row_fails(row: FaultRow, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        row.check()


def test_violations_are_listed_below_their_row() -> None:
    lines = table({"F1": measured_row(violated=True, caught=False).measured})
    assert lines[1].split()[:3] == ["F1", "2", "1"]
    assert lines[1].endswith("NOT CAUGHT")
    assert lines[2].strip().startswith("a kill: a step is missing")


def test_the_effective_training_time_ratio_is_written_and_listed() -> None:
    measured = measured_row().measured
    assert "ettr" not in measured.entry()
    measured.ratio = 0.93456
    assert measured.entry()["ettr"] == 0.935
    assert table({"F21": measured})[2].strip() == "ETTR 0.935"
