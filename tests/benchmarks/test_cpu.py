"""The trainer's rows of ``make bench`` run at toy size, and a row that lacks a requirement reports it."""

import json
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.benchmarks import cpu
from tests.benchmarks.harness import cpu_quota, peer_venv
from tests.benchmarks.report.results import RefusedError
from tests.benchmarks.trainer import auto_stages, step_time
from tests.benchmarks.trainer.cpu_rows import TRAINER_ROWS

dry_run = pytest.mark.slow(target="bench-dry")


@dry_run
@pytest.mark.parametrize("row", [row for row in TRAINER_ROWS if row != "bytes"])
def test_a_row_writes_the_ratio_it_measured(
    row: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Tests use no network, so no peer is installed: the bare loop replaces all of them.
    monkeypatch.setattr(step_time, "peers_python", lambda create: sys.executable)
    monkeypatch.setattr(step_time, "HF_TRAINER", step_time.BARE)
    file = tmp_path / "bench.json"
    file.write_text('{"other": {}}')
    if row == "stages-auto" and not _quota_can_be_set():
        assert cpu.main([row, "--toy", "--json", str(file)]) != 0
        assert json.loads(file.read_text()) == {"other": {}}
        return
    assert cpu.main([row, "--toy", "--json", str(file)]) == 0
    entries = json.loads(file.read_text())
    assert entries.pop("other") == {}
    assert row in entries and all(name.startswith(row.split("-")[0]) for name in entries)
    for entry in entries.values():
        assert set(entry) - {"other_clock"} == {"ours", "peer", "ratio", "unit", "pass", "goal", "reached"}
        assert entry["ratio"] == pytest.approx(entry["ours"] / entry["peer"])


def _quota_can_be_set() -> bool:
    try:
        with cpu_quota.cpu_quota(0.5):
            return True
    except RefusedError:
        return False


@dry_run
def test_a_row_that_needs_a_cpu_quota_reports_that_none_can_be_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = partial(cpu_quota.cpu_quota, root=tmp_path)
    monkeypatch.setattr(auto_stages, "cpu_quota", nowhere)
    file = tmp_path / "bench.json"
    assert cpu.main(["stages-auto", "--toy", "--json", str(file)]) == 2
    assert (
        "not measured, a rank is slowed down by a CPU quota, and none can be set" in capsys.readouterr().out
    )
    assert not file.exists() and not list(tmp_path.glob("trainwright-bench-*"))


def test_a_row_without_its_peer_reports_it_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(peer_venv, "FOLDER", tmp_path / "none")
    file = tmp_path / "bench.json"
    assert cpu.main(["overhead-hf-trainer", "--toy", "--json", str(file)]) == 2
    assert "not measured, none is not installed" in capsys.readouterr().out
    assert not file.exists() or not json.loads(file.read_text())
