"""A rank's memory and its device are told on every system that can train."""

from pathlib import Path

import pytest
import torch

from trainwright_trainer.observe import memory


@pytest.mark.parametrize("kernel_tells", [True, False])
def test_memory_and_name_are_told_with_and_without_proc(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kernel_tells: bool
) -> None:
    if not kernel_tells:
        monkeypatch.setattr(memory, "_MEMORY", tmp_path / "none")
        monkeypatch.setattr(memory, "_CPUS", tmp_path / "none")
    assert memory.memory_bytes(torch.device("cpu")) > 100_000  # torch alone is more, in any unit
    assert memory.device_name(torch.device("cpu"))
