"""What a node says it has."""

import os
import sys
from pathlib import Path

import pytest

from trainwright_agent.identity import Settings
from trainwright_agent.inventory import parse_gpus, take_inventory


def test_the_drivers_table_is_read_and_other_lines_are_passed_over() -> None:
    answer = "0, NVIDIA H200, 143771\n1, NVIDIA H200, 143771\nNo devices were found\n2, Broken, [N/A]\n"
    assert [(gpu.index, gpu.name, gpu.memory_bytes) for gpu in parse_gpus(answer)] == [
        (0, "NVIDIA H200", 143771 * 2**20),
        (1, "NVIDIA H200", 143771 * 2**20),
    ]


def test_a_self_test_that_fails_costs_the_peak_and_is_loud(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    inventory = take_inventory(tmp_path, Settings(trainer_module="no_such_trainer"))
    assert inventory.cpu_peak is None
    assert inventory.cores >= 1
    assert inventory.cpu_name
    assert "SELF-TEST FAILED" in caplog.text
    assert "no_such_trainer" in caplog.text


def test_whether_deepspeed_is_installed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repository: Path
) -> None:
    packages = tmp_path / "packages"
    (packages / "deepspeed").mkdir(parents=True)
    (packages / "deepspeed" / "__init__.py").write_text("raise RuntimeError('looking must not import it')")
    settings = Settings(trainer_module="no_such_trainer")
    monkeypatch.delitem(sys.modules, "deepspeed", raising=False)
    monkeypatch.setattr(sys, "path", [str(packages)])
    assert take_inventory(tmp_path, settings).deepspeed is True
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert take_inventory(tmp_path, settings).deepspeed is False


def test_the_peak_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repository: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", str(repository))
    settings = Settings(trainer_module="tests.agent.standin", cpu_slots=3)
    measured = take_inventory(tmp_path, settings)
    assert measured.cpu_peak is not None
    monkeypatch.delenv("PYTHONPATH")
    assert take_inventory(tmp_path, settings).cpu_peak == measured.cpu_peak
    other_slots = settings.model_copy(update={"cpu_slots": 2, "trainer_module": "no_such_trainer"})
    assert take_inventory(tmp_path, other_slots).cpu_peak is None


def test_slots_are_the_gpus_that_the_trainer_sees_at_this_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repository: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho '0, NVIDIA H200, 143771\n1, NVIDIA H200, 143771'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent), prepend=os.pathsep)
    monkeypatch.setenv("PYTHONPATH", str(repository))
    settings = Settings(trainer_module="tests.agent.standin", cpu_slots=2)
    for visible, seen in (("0,1", 2), ("1", 1), ("", 0)):  # the last as with a build of torch for CPUs
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        caplog.clear()
        inventory = take_inventory(tmp_path, settings)
        assert [gpu.index for gpu in inventory.gpus] == list(range(seen))
        assert all(gpu.name.endswith("by PCI_BUS_ID") for gpu in inventory.gpus)
        assert (f"SEES {seen} OF 2 GPUS" in caplog.text) is (seen < 2)
        assert inventory.cpu_peak is not None
