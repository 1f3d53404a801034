"""A rank's memory and its device are reported on every system that can train."""

import os
import time
from pathlib import Path

import pytest
import torch

from trainwright_trainer.observe import memory


@pytest.mark.parametrize("kernel_tells", [True, False])
def test_memory_and_name_are_reported_with_and_without_proc(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kernel_tells: bool
) -> None:
    if not kernel_tells:
        monkeypatch.setattr(memory, "_MEMORY", str(tmp_path / "none"))
        monkeypatch.setattr(memory, "_CPUS", tmp_path / "none")
    assert memory.memory_bytes(torch.device("cpu")) > 100_000  # torch alone is more, in any unit
    assert memory.device_name(torch.device("cpu"))


def test_allocated_memory_is_reported_a_tenth_of_a_second_later() -> None:
    cpu = torch.device("cpu")
    before = memory.memory_bytes(cpu)
    taken = torch.ones(2**26)
    deadline = time.monotonic() + 20
    while memory.memory_bytes(cpu) < before + taken.nbytes // 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the kernel has no /proc")
def test_a_forked_child_reports_its_own_memory() -> None:
    """It allocates 512 MB that its parent, which measured earlier, has not."""
    memory.memory_bytes(torch.device("cpu"))
    child = os.fork()
    if not child:
        taken = bytearray(os.urandom(2**20) * 2**9)
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        error = memory.memory_bytes(torch.device("cpu")) - pages * os.sysconf("SC_PAGE_SIZE")
        os._exit(0 if abs(error) < len(taken) // 8 else 1)
    assert os.waitpid(child, 0)[1] == 0
