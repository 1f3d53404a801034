"""The inventory that a node reports."""

import os
import sys
from pathlib import Path

import pytest

from trainwright_agent.daemon.inventory import collect_inventory, parse_gpus
from trainwright_agent.identity import Settings


def test_the_drivers_table_is_parsed_and_other_lines_are_skipped() -> None:
    answer = "0, NVIDIA H200, 143771\n1, NVIDIA H200, 143771\nNo devices were found\n2, Broken, [N/A]\n"
    assert [(gpu.index, gpu.name, gpu.memory_bytes) for gpu in parse_gpus(answer)] == [
        (0, "NVIDIA H200", 143771 * 2**20),
        (1, "NVIDIA H200", 143771 * 2**20),
    ]


def test_a_failed_self_test_is_logged_and_leaves_no_peak(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    inventory = collect_inventory(tmp_path, Settings(trainer_module="no_such_trainer"))
    assert inventory.cpu_peak is None
    assert inventory.cores >= 1
    assert inventory.cpu_name
    assert "SELF-TEST FAILED" in caplog.text
    assert "no_such_trainer" in caplog.text


def test_the_inventory_reports_whether_deepspeed_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repository: Path
) -> None:
    packages = tmp_path / "packages"
    (packages / "deepspeed").mkdir(parents=True)
    (packages / "deepspeed" / "__init__.py").write_text("raise RuntimeError('it must not be imported')")
    settings = Settings(trainer_module="no_such_trainer")
    monkeypatch.delitem(sys.modules, "deepspeed", raising=False)
    monkeypatch.setattr(sys, "path", [str(packages)])
    assert collect_inventory(tmp_path, settings).deepspeed is True
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert collect_inventory(tmp_path, settings).deepspeed is False


def test_the_peak_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repository: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", str(repository))
    settings = Settings(trainer_module="tests.agent.standin", cpu_slots=3)
    measured = collect_inventory(tmp_path, settings)
    assert measured.cpu_peak is not None
    monkeypatch.delenv("PYTHONPATH")
    assert collect_inventory(tmp_path, settings).cpu_peak == measured.cpu_peak
    other_slots = settings.model_copy(update={"cpu_slots": 2, "trainer_module": "no_such_trainer"})
    assert collect_inventory(tmp_path, other_slots).cpu_peak is None


def test_slots_are_the_gpus_that_the_trainer_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repository: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho '0, NVIDIA H200, 143771\n1, NVIDIA H200, 143771'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent), prepend=os.pathsep)
    monkeypatch.setenv("PYTHONPATH", str(repository))
    settings = Settings(trainer_module="tests.agent.standin", cpu_slots=2)
    for visible, seen in (("0,1", 2), ("1", 1), ("", 0)):  # the last like a CPU build of torch
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        caplog.clear()
        inventory = collect_inventory(tmp_path, settings)
        assert [gpu.index for gpu in inventory.gpus] == list(range(seen))
        assert all(gpu.name.endswith("by PCI_BUS_ID") for gpu in inventory.gpus)
        assert (f"SEES {seen} OF 2 GPUS" in caplog.text) is (seen < 2)
        assert inventory.cpu_peak is not None
