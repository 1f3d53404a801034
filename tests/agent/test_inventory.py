"""What a node says it has."""

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
    assert "PEAK IS UNKNOWN" in caplog.text
    assert "no_such_trainer" in caplog.text


def test_the_peak_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repository: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", str(repository))
    settings = Settings(trainer_module="tests.agent.standin", cpu_slots=3)
    measured = take_inventory(tmp_path, settings)
    assert measured.cpu_peak is not None
    monkeypatch.delenv("PYTHONPATH")
    assert take_inventory(tmp_path, settings).cpu_peak == measured.cpu_peak
    other_slots = settings.model_copy(update={"cpu_slots": 2, "trainer_module": "no_such_trainer"})
    assert take_inventory(tmp_path, other_slots).cpu_peak is None
