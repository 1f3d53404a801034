"""The inventory that a node reports."""

import encodings.idna  # noqa: F401  # loaded at its first use, and never again if `sys.path` lacks it then
import json
import os
import sys
from functools import partial
from pathlib import Path

import pytest

from trainwright.contracts.agent_protocol import CpuPeak
from trainwright.contracts.job_spec import Peak
from trainwright.contracts.precision_spec import PrecisionKind
from trainwright_agent.daemon import inventory as inventories
from trainwright_agent.daemon.cpu_peak import PEAK_NAME
from trainwright_agent.daemon.inventory import (
    collect_inventory,
    measure_peak_again,
    note_beaten_peak,
    parse_gpus,
    wants_calm_peak,
    with_present_address,
)
from trainwright_agent.identity import Settings

API = "http://127.0.0.1:8000"


def test_the_drivers_table_is_parsed_and_other_lines_are_skipped() -> None:
    response = "0, NVIDIA H200, 143771\n1, NVIDIA H200, 143771\nNo devices were found\n2, Broken, [N/A]\n"
    assert [(gpu.index, gpu.name, gpu.memory_bytes) for gpu in parse_gpus(response)] == [
        (0, "NVIDIA H200", 143771 * 2**20),
        (1, "NVIDIA H200", 143771 * 2**20),
    ]


def test_the_peer_address_follows_the_current_route(tmp_path: Path) -> None:
    """An agent may start before the network, and it collects its inventory only once."""
    settings = Settings(cpu_slots=0)
    before = collect_inventory(tmp_path, settings, "http://[::1]:8000")
    assert before.peer_address is None, "IPv4 only"
    assert with_present_address(before, settings, API).peer_address == "127.0.0.1"
    named = settings.model_copy(update={"peer_address": "10.9.8.7"})
    assert with_present_address(before, named, API).peer_address is None, (
        "the operator's address is not replaced"
    )


def test_a_failed_self_test_is_logged_and_leaves_no_peak(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    inventory = collect_inventory(tmp_path, Settings(trainer_module="no_such_trainer"), API)
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
    assert collect_inventory(tmp_path, settings, API).deepspeed is True
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert collect_inventory(tmp_path, settings, API).deepspeed is False


def test_the_peak_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repository: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", str(repository))
    settings = Settings(trainer_module="tests.agent.standin", cpu_slots=3)
    measured = collect_inventory(tmp_path, settings, API)
    assert measured.cpu_peak is not None
    monkeypatch.delenv("PYTHONPATH")
    assert collect_inventory(tmp_path, settings, API).cpu_peak == measured.cpu_peak
    other_slots = settings.model_copy(update={"cpu_slots": 2, "trainer_module": "no_such_trainer"})
    assert collect_inventory(tmp_path, other_slots, API).cpu_peak is None


def test_a_peak_of_a_busy_machine_is_measured_again_and_the_best_one_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repository: Path
) -> None:
    """The stand-in measures fp32 2, bf16 1 and fp8 3 GFLOP/s."""
    monkeypatch.setenv("PYTHONPATH", str(repository))
    settings = Settings(trainer_module="tests.agent.standin", cpu_slots=3)
    for is_calm in (False, True):
        monkeypatch.setattr(inventories, "is_machine_calm", partial(bool, is_calm))
        (tmp_path / PEAK_NAME).unlink(missing_ok=True)
        collect_inventory(tmp_path, settings, API)
        assert wants_calm_peak(tmp_path, settings) is not is_calm
    saved = json.loads((tmp_path / PEAK_NAME).read_text())
    saved["peak"] = {"fp32": 1e9, "bf16": 4e9, "fp8": 4e9}
    (tmp_path / PEAK_NAME).write_text(json.dumps(saved))
    assert measure_peak_again(tmp_path, settings) == CpuPeak(fp32=2e9, bf16=4e9, fp8=4e9)


def test_a_peak_that_a_run_has_beaten_is_unknown_until_a_calm_measurement_exceeds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repository: Path
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(repository))
    monkeypatch.setattr(inventories, "is_machine_calm", lambda: True)
    settings = Settings(trainer_module="tests.agent.standin", cpu_slots=3)
    assert collect_inventory(tmp_path, settings, API).cpu_peak == CpuPeak(fp32=2e9, bf16=1e9, fp8=3e9)
    by = Peak(flops_per_second=4e9, dtype="fp8", device="a CPU", measured=True)
    beaten = CpuPeak(fp32=2e9, bf16=0.0, fp8=0.0)
    assert note_beaten_peak(tmp_path, settings, by) == beaten
    assert collect_inventory(tmp_path, settings, API).cpu_peak == beaten
    assert wants_calm_peak(tmp_path, settings)
    assert measure_peak_again(tmp_path, settings) == beaten, "it measures the same, which is too little"
    assert not wants_calm_peak(tmp_path, settings)
    saved = json.loads((tmp_path / PEAK_NAME).read_text())
    saved["peak"] |= {"bf16": 5e9, "fp8": 5e9}
    (tmp_path / PEAK_NAME).write_text(json.dumps(saved))
    assert collect_inventory(tmp_path, settings, API).cpu_peak == CpuPeak(fp32=2e9, bf16=5e9, fp8=5e9)


def test_a_peak_in_wall_time_or_of_other_cores_is_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repository: Path
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(repository))
    settings = Settings(trainer_module="tests.agent.standin", cpu_slots=3)
    measured = collect_inventory(tmp_path, settings, API).cpu_peak
    saved = json.loads((tmp_path / PEAK_NAME).read_text())
    wrong = {"peak": {"fp32": 9e9, "bf16": 9e9, "fp8": 9e9}}
    for old in ({"method": 1}, {"cores": saved["cores"] + 1}):
        (tmp_path / PEAK_NAME).write_text(json.dumps(saved | wrong | old))
        assert collect_inventory(tmp_path, settings, API).cpu_peak == measured


@pytest.mark.parametrize(
    ("measured", "known"),
    [
        (CpuPeak(fp32=4e9, bf16=9e9, fp8=9e9), (4e9, 9e9, 9e9)),
        (CpuPeak(fp32=4e9, bf16=1e9), (4e9, 1e9, None)),
        (CpuPeak(fp32=4e9, bf16=0.9e9, fp8=0.9e9), (4e9, None, None)),  # less than a quarter
        (CpuPeak(fp32=0.0, bf16=9e9, fp8=float("inf")), (None, 9e9, None)),
        (CpuPeak(fp32=float("nan"), bf16=0.0, fp8=0.0), (None, None, None)),
    ],
)
def test_an_implausible_peak_is_unknown(measured: CpuPeak, known: tuple[float | None, ...]) -> None:
    kinds = (PrecisionKind.FP32, PrecisionKind.BF16, PrecisionKind.FP8)
    assert tuple(measured.rate(kind) for kind in kinds) == known
    assert measured.rate(PrecisionKind.AUTO) is None


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
        inventory = collect_inventory(tmp_path, settings, API)
        assert [gpu.index for gpu in inventory.gpus] == list(range(seen))
        assert all(gpu.name.endswith("by PCI_BUS_ID") for gpu in inventory.gpus)
        assert (f"SEES {seen} OF 2 GPUS" in caplog.text) is (seen < 2)
        assert inventory.cpu_peak is not None
