"""The rows of ``make gpu`` run at toy size on any machine, so that errors are found without a GPU."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.benchmarks import gpu
from tests.benchmarks.harness.gpu_presence import why_no_gpu
from tests.benchmarks.report.results import RECORD, RefusedError
from tests.benchmarks.trainer import peer_trainers
from tests.benchmarks.trainer.gpu_rows import CHECKS, ROWS, Setting

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
    assert found.figures.get("exit_code", 0) == 0
    assert not (tmp_path / "gpu.json").exists()
    assert (RECORD.read_bytes() if RECORD.exists() else None) == before


@pytest.mark.slow(target="bench-dry")
def test_each_gpu_test_is_in_one_row(repository: Path) -> None:
    def collected(*where: str) -> list[str]:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "--collect-only",
            "-m",
            "gpu",
            "-p",
            "no:cacheprovider",
        ]
        done = subprocess.run([*command, *where], cwd=repository, capture_output=True, text=True)
        return [line for line in done.stdout.splitlines() if "::" in line]

    rows = [test for where in CHECKS.values() for test in collected(*where)]
    assert len(rows) == len(set(rows)) > 10
    assert set(rows) == set(collected("tests/trainer"))


NO_GPU = [
    ("CUDA_VISIBLE_DEVICES is empty", "unset it"),
    ("built without CUDA", "make setup TORCH_INDEX="),
    ("no NVIDIA driver", "install it"),
    ("no device", "--gpus all"),
    ("cannot use the driver", "update the driver"),
]


@pytest.mark.parametrize("met", range(len(NO_GPU)), ids=[reason for reason, _ in NO_GPU])
def test_without_a_gpu_the_reason_and_its_remedy_are_reported(
    met: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each obstacle is reported once the previous ones are removed."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if met == 0:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(torch.version, "cuda", "12.9" if met > 1 else None)
    driver = tmp_path / "version"
    if met > 2:
        driver.touch()
    if met > 3:
        (tmp_path / "nvidia0").touch()
    missing = why_no_gpu(driver, tmp_path)
    assert missing is not None
    assert all(words in missing for words in NO_GPU[met])


@pytest.mark.slow(target="bench-dry")
def test_without_a_gpu_it_fails_unless_a_dry_run_is_requested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    record = ["--record", str(tmp_path / "gpu.json")]
    assert gpu.main(record) == gpu.main(["memory-state", *record]) == 1
    assert "There is no GPU here: " in capsys.readouterr().err
    assert gpu.main(["memory-state", "--dry-run", *record]) == 0
    assert not list(tmp_path.iterdir())


def test_fp8_under_the_cap_waits_for_bf16_under_the_cap(tmp_path: Path) -> None:
    (row,) = (row for row in ROWS if row.name == "capped-fp8")
    with pytest.raises(RefusedError, match="ROW=capped-bf16"):
        row.run(Setting(tmp_path, dry=False, record=tmp_path / "gpu.json"))


@pytest.mark.parametrize("row", WITH_PEERS, ids=lambda row: row.name)
def test_a_row_without_its_peer_names_the_command_that_installs_it(
    row: gpu.Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = row.name.removeprefix("peer-")
    monkeypatch.setitem(peer_trainers.PACKAGES, name, {"no_such_module": "no-such-package"})
    assert gpu.main([row.name, "--dry-run", "--record", str(tmp_path / "gpu.json")]) == 2
    assert "not installed: pip install no-such-package" in capsys.readouterr().out
