"""The stacks of ranks that hang, read from real processes."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.machine import wait_for
from trainwright_agent import processes
from trainwright_agent.supervisor import stacks

MARKER = processes.marker("run_stacks", "claim-of-the-stacks")
RANK = """
import ctypes, faulthandler, signal, sys, time
ctypes.CDLL(None).prctl(15, b"tw-rank-3", 0, 0, 0)
ctypes.CDLL(None).prctl(0x59616D61, int(sys.argv[1]), 0, 0, 0)
faulthandler.register(signal.SIGUSR1)
def wait_in_a_collective():
    print("here", flush=True)
    time.sleep(600)
wait_in_a_collective()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "out" / "logs").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def rank(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process with the name and the marker of rank 3, which writes to its log."""
    with (folder / "out" / "logs" / "rank-3.log").open("wb") as log:
        command = [sys.executable, "-c", RANK, str(os.getpid())]
        process = subprocess.Popen(
            command, env=os.environ | {processes.MARKER_VARIABLE: MARKER}, stdout=log, stderr=log
        )
    try:
        wait_for(lambda: "here" in _log(folder, "rank-3.log"), "the rank has started")
        yield process
    finally:
        process.kill()
        process.wait()


def _log(folder: Path, name: str) -> str:
    file = folder / "out" / "logs" / name
    return file.read_text() if file.exists() else ""


def test_the_stack_of_a_stopped_rank_is_recorded(folder: Path, rank: subprocess.Popen[bytes]) -> None:
    assert stacks.stopped_ranks(MARKER) == set()
    rank.send_signal(signal.SIGSTOP)
    wait_for(lambda: stacks.stopped_ranks(MARKER) == {3}, "the rank is stopped")
    stacks.keep_stacks(folder, "stacks.log", MARKER)
    kept = _log(folder, "stacks.log")
    assert kept.startswith("Rank 3:")
    assert "wait_in_a_collective" in kept


def test_without_py_spy_the_rank_writes_its_stack_itself(
    folder: Path, rank: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    stacks.keep_stacks(folder, "stacks.log", MARKER)
    assert "py-spy could not read its stacks" in _log(folder, "stacks.log")
    assert "rank-3.log" in _log(folder, "stacks.log")
    wait_for(lambda: "wait_in_a_collective" in _log(folder, "rank-3.log"), "the rank has written its stack")


def test_the_log_of_stacks_is_never_a_link(folder: Path, rank: subprocess.Popen[bytes]) -> None:
    (folder / "out" / "logs" / "stacks.log").symlink_to(folder / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        stacks.keep_stacks(folder, "stacks.log", MARKER)
    assert not (folder / "elsewhere").exists()
