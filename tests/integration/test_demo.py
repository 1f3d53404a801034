"""`make demo`: it succeeds, stops on Ctrl-C, and leaves no process behind."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.live import eventually, marked_processes

pytestmark = pytest.mark.timeout(400)


def start(repository: Path, folder: Path, *words: str) -> subprocess.Popen[str]:
    """Start the demo like `make demo`, with its data in ``folder``."""
    where = ["--data", str(folder), "--json", str(folder / "demo.json")]
    command = [sys.executable, str(repository / "infra" / "demo.py"), *where, *words]
    with (folder / f"output-{len(list(folder.glob('output-*')))}").open("w") as out:
        return subprocess.Popen(command, stdout=out, stderr=out, text=True)


def output(folder: Path) -> str:
    return "\n".join(file.read_text() for file in sorted(folder.glob("output-*")))


def processes_of(folder: Path) -> list[str]:
    """Command lines of living processes that mention ``folder``."""
    found = []
    for process in Path("/proc").iterdir():
        with suppress(OSError):
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            words = command.encode() + (process / "environ").read_bytes()
            if process.name.isdigit() and int(process.name) != os.getpid() and str(folder).encode() in words:
                found.append(command)
    return found


@pytest.mark.slow(target="faults")
def test_the_demo_trains_downloads_and_leaves_nothing_running(repository: Path, tmp_path: Path) -> None:
    demo = start(repository, tmp_path, "--once", "--steps", "12")
    assert demo.wait(300) == 0, output(tmp_path)
    result = json.loads((tmp_path / "demo.json").read_text())
    assert (result["state"], result["steps"]) == ("succeeded", 12)
    assert result["precision"] in ("fp32", "bf16")
    assert result["last_loss"] < result["first_loss"]
    assert result["tokens_per_second"] > 0
    assert 0 < result["mfu"] < 1
    assert (Path(result["checkpoint"]) / "model.safetensors").exists()
    assert result["sample"].startswith("def ")
    assert processes_of(tmp_path) == []
    for secret in ("secrets.json", "demo-key"):
        assert (tmp_path / "demo" / secret).stat().st_mode & 0o777 == 0o600


@pytest.mark.slow(target="faults")
def test_ctrl_c_cancels_the_run_and_the_next_demo_reuses_the_dataset(
    repository: Path, tmp_path: Path
) -> None:
    """The next demo trains in FP8."""
    demo = start(repository, tmp_path, "--steps", "100000")
    eventually(lambda: _has_made_a_step(tmp_path), "the run is training", 200)
    demo.send_signal(signal.SIGINT)
    assert demo.wait(90) == 130, output(tmp_path)
    assert processes_of(tmp_path) == []
    assert "Cancelling" in output(tmp_path)

    second = start(repository, tmp_path, "--once", "--precision", "fp8", "--steps", "8")
    assert second.wait(300) == 0, output(tmp_path)
    assert "is there already" in output(tmp_path)
    result = json.loads((tmp_path / "demo.json").read_text())
    assert (result["state"], result["precision"], result["steps"]) == ("succeeded", "fp8", 8)
    assert result["last_loss"] < result["first_loss"]
    assert result["sample"].startswith("def ")


@pytest.mark.slow(target="faults")
def test_the_processes_of_a_killed_demo_die_with_it(repository: Path, tmp_path: Path) -> None:
    """All except the run's own processes, which stop by themselves when they can no longer renew their lease."""
    demo = start(repository, tmp_path, "--steps", "100000")
    eventually(lambda: _has_made_a_step(tmp_path), "the run is training", 200)
    second = start(repository, tmp_path, "--steps", "100000")
    eventually(
        lambda: "taking the next folder" in output(tmp_path), "a second demo takes the next folder", 60
    )
    for process in (demo, second):
        process.kill()
        process.wait()
    eventually(lambda: not _parts(tmp_path), "broker, API, worker and agent are gone", 10)
    for pid in marked_processes(tmp_path):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _parts(folder: Path) -> list[str]:
    of_a_run = ("trainwright_agent.supervisor.main", "trainwright_trainer", "multiprocessing")
    return [line for line in processes_of(folder) if not any(word in line for word in of_a_run)]


def _has_made_a_step(folder: Path) -> bool:
    return any('"step"' in file.read_text() for file in folder.glob("demo/agent/runs/*/out/events.jsonl"))
