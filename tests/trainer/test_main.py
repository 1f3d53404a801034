"""The command line: from text files to text, without a platform."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.selection import partly_slow
from tests.trainer.jobs import TINY
from trainwright_trainer.main import main
from trainwright_trainer.process import device_measurement


def test_a_text_file_becomes_a_trained_model_and_a_sample(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "book.txt").write_text("All happy families are alike.\n" * 3_000)
    (tmp_path / "notes.jsonl").write_text('{"text": "fine"}\nnot json\n')
    files = [str(tmp_path / "book.txt"), str(tmp_path / "notes.jsonl")]
    wanted = ["--out", str(tmp_path / "data"), "--vocabulary", "300", "--rejected-limit", "0.5"]
    assert main(["prepare", *files, *wanted]) == 0
    assert "notes.jsonl:2 is not a JSON object" in capfd.readouterr().err

    data = {"dataset": "local", "tokenizer": {"vocabulary": 300}}
    spec = TINY | {
        "data": data,
        "schedule": {"steps": 30, "warmup_steps": 3},
        "optimizer": {"learning_rate": 1e-2},
    }
    job = {"run_id": "local", "attempt": 1, "fence": 1, "device": "cpu", "slots": [0], "spec": spec}
    (tmp_path / "job.json").write_text(json.dumps(job))
    # The launcher forks, so it gets its own process instead of this one, which has run torch.
    command = [sys.executable, "-m", "trainwright_trainer.main", "train", "job.json"]
    assert subprocess.run(command, cwd=tmp_path, timeout=100).returncode == 0

    assert main(["export", str(tmp_path / "job.json")]) == 0
    capfd.readouterr()
    prompt = ["--prompt", "All happy", "--tokens", "8", "--temperature", "0"]
    assert main(["sample", str(tmp_path / "out/export"), *prompt]) == 0
    assert capfd.readouterr().out.startswith("All happy families are alike.")


@pytest.mark.slow(target="layouts")
def test_the_selftest_measures_the_cpu() -> None:
    """In a separate process, because it forks the measuring processes."""
    command = [sys.executable, "-m", "trainwright_trainer.main", "selftest", "--slots", "2"]
    hardware = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=400).stdout)
    assert hardware["cpu"]["slots"] == 2
    assert set(hardware["cpu"]["flops_per_second"]) == {"fp32", "bf16", "fp8"}
    assert all(1e8 < rate < 1e14 for rate in hardware["cpu"]["flops_per_second"].values())
    assert isinstance(hardware["cuda"], list)


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("slots", [1, 2])
def test_a_busy_machine_does_not_change_the_peak(slots: int) -> None:
    """Four processes keep the cores busy at equal priority. The documented limit is 1.5. In CPU time only caches and
    clocks differ, by less than a tenth here. In wall time the ratio was up to 17."""
    command = [sys.executable, "-m", "trainwright_trainer.main", "selftest", "--slots", str(slots)]

    def rates() -> dict[str, float]:
        output = subprocess.run(command, capture_output=True, check=True, timeout=500).stdout
        return dict(json.loads(output)["cpu"]["flops_per_second"])

    alone = rates()
    others = [subprocess.Popen([sys.executable, "-c", "while True: sum(range(9999))"]) for _ in range(4)]
    try:
        with_others = rates()
    finally:
        for other in others:
            other.kill()
            other.wait()
    print({kind: (alone[kind] / 1e9, with_others[kind] / 1e9) for kind in alone})
    assert all(1 / 1.5 < with_others[kind] / alone[kind] < 1.5 for kind in alone)


def test_gpus_are_numbered_by_bus_before_cuda_is_queried(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA reads the order of devices once, at the first query."""
    order_when_queried = []
    monkeypatch.setattr(
        torch.cuda,
        "is_available",
        lambda: bool(order_when_queried.append(os.environ.get("CUDA_DEVICE_ORDER"))),
    )
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    monkeypatch.setattr(device_measurement, "measure_rates", lambda slots, threads: {})
    assert device_measurement.measure_devices(1)["cuda"] == []
    assert order_when_queried == ["PCI_BUS_ID"]


@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize(("visible", "indices"), partly_slow([("0", [0]), ("", [])], [("0", [0])]))
def test_the_selftest_lists_what_is_visible(visible: str, indices: list[int]) -> None:
    command = [sys.executable, "-m", "trainwright_trainer.main", "selftest", "--slots", "0"]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": visible}
    done = subprocess.run(command, capture_output=True, check=True, timeout=100, env=environment)
    found = json.loads(done.stdout)
    assert [gpu["index"] for gpu in found["cuda"]] == indices
    assert set(found["cpu"]["flops_per_second"].values()) == {0.0}, "without slots the CPU is not measured"


@pytest.mark.parametrize("command", ["main", "launch"])
def test_a_command_does_not_load_torch_early(command: str) -> None:
    """Help is quick, and the parent-death signal is set before the seconds that torch takes to load."""
    code = f"import sys, trainwright_trainer.{command}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


@pytest.mark.parametrize("arguments", [[], ["fly"], ["train"]])
def test_a_wrong_command_line_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2
