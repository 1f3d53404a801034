"""The rows of ``make gpu`` run at toy size on any machine: their code must not meet its first error on a GPU."""

from pathlib import Path

import pytest

from tests.benchmarks import gpu
from tests.benchmarks.report.results import RECORD
from tests.benchmarks.trainer import peer_trainers
from tests.benchmarks.trainer.gpu_rows import ROWS

OURS_ALONE = [row for row in ROWS if not row.name.startswith("peer-")]
WITH_PEERS = [row for row in ROWS if row.name.startswith("peer-")]


@pytest.mark.slow(target="bench-dry")
@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize("row", OURS_ALONE, ids=lambda row: row.name)
def test_a_dry_run_measures_what_is_judged_and_records_nothing(row: gpu.Row, tmp_path: Path) -> None:
    before = RECORD.read_bytes() if RECORD.exists() else None
    found = gpu.run_row(row, dry=True, record=tmp_path / "gpu.json")
    assert found is not None
    # MFU needs the peak of a GPU; everything else that is judged must be measured.
    judged = {mark.figure for mark in row.marks if "mfu" not in mark.figure}
    assert judged <= set(found.figures)
    assert not (tmp_path / "gpu.json").exists()
    assert (RECORD.read_bytes() if RECORD.exists() else None) == before


@pytest.mark.parametrize("row", WITH_PEERS, ids=lambda row: row.name)
def test_a_row_without_its_peer_names_the_command_that_installs_it(
    row: gpu.Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = row.name.removeprefix("peer-")
    monkeypatch.setitem(peer_trainers.PACKAGES, name, {"no_such_module": "no-such-package"})
    assert gpu.main([row.name, "--dry-run", "--record", str(tmp_path / "gpu.json")]) == 2
    assert "not installed: pip install no-such-package" in capsys.readouterr().out
