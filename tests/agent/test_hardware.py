"""Hardware use of the node and of a run's ranks with their children, and means between two batches."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pynvml
import pytest

from tests.agent.api import ScriptedApi
from tests.agent.machine import Machine, wait_for
from trainwright.contracts.hardware import GpuUse, RankUse, RunHardwareUse
from trainwright_agent.hardware import HardwareMonitor, NvidiaGpus, mean_use, ranks_of
from trainwright_agent.processes import MARKER_VARIABLE, marked_pids

MARKER = "run_1/measured"
RANK = """
import ctypes, subprocess, sys, time
ctypes.CDLL(None).prctl(15, sys.argv[1].encode(), 0, 0, 0)
spin = "import time\\nprint(flush=True)\\nwhile True: pass"
child = subprocess.Popen([sys.executable, "-c", spin]) if "child" in sys.argv else None
print(flush=True)
while True:
    time.sleep(0 if "spin" in sys.argv else 1)
"""


@pytest.fixture
def ranks() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Rank 0 computes in a child process, rank 12 sleeps, and a process with an impossible rank is ignored."""
    environment = os.environ | {MARKER_VARIABLE: MARKER}
    started = [
        subprocess.Popen([sys.executable, "-c", RANK, *words], env=environment, stdout=subprocess.PIPE)
        for words in (["tw-rank-0", "child"], ["tw-rank-12"], ["tw-rank-9999", "spin"])
    ]
    for process in started:
        assert process.stdout is not None
        process.stdout.readline()
    yield started
    for pid in marked_pids().get(MARKER, []):
        psutil.Process(pid).kill()
    for process in started:
        process.wait()


def test_a_ranks_children_count_for_it_and_other_processes_are_ignored(
    tmp_path: Path, ranks: list[subprocess.Popen[bytes]]
) -> None:
    monitor = HardwareMonitor(tmp_path)
    assert monitor.present() is None and monitor.take(MARKER) is None
    monitor.sample({MARKER: []})
    first = monitor.take(MARKER)
    assert first is not None and first.ranks == [], "CPU time is known from the second sample on"
    of_rank = ranks_of(marked_pids()[MARKER])
    children = psutil.Process(ranks[0].pid).children()
    assert of_rank == {ranks[0].pid: 0, children[0].pid: 0, ranks[1].pid: 12}
    spent = children[0].cpu_times().user
    wait_for(lambda: children[0].cpu_times().user > spent + 0.2, "work of the child")
    monitor.sample({MARKER: []})
    found = monitor.take(MARKER)
    assert found is not None and monitor.take(MARKER) is None
    busy, idle = found.ranks
    assert (busy.rank, idle.rank) == (0, 12)
    assert 0 < busy.cpu_cores < 1.5 and idle.cpu_cores < 0.5 * busy.cpu_cores
    own = psutil.Process(ranks[1].pid).memory_info().rss
    assert idle.memory_bytes == pytest.approx(own, rel=0.2) and busy.memory_bytes > 1.2 * own
    present = monitor.present()
    assert present is not None and present.cpu_utilization > 0
    assert 0 < present.memory_bytes < present.memory_total_bytes == psutil.virtual_memory().total
    assert 0 < present.disk_bytes < present.disk_total_bytes


def test_an_attempt_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    monitor = HardwareMonitor(tmp_path)
    monitor.sample({MARKER: [], "run_2/other": []})
    monitor.sample({"run_2/other": []})
    assert monitor.take(MARKER) is None and monitor.take("run_2/other") is not None


def use(share: float, gpus: list[GpuUse], ranks: list[RankUse]) -> RunHardwareUse:
    size = round(100 * share)
    return RunHardwareUse(
        cpu_utilization=share,
        memory_bytes=size,
        memory_total_bytes=100,
        disk_bytes=size,
        disk_total_bytes=100,
        gpus=gpus,
        ranks=ranks,
    )


def test_a_mean_uses_the_samples_that_have_a_value() -> None:
    first = use(0.2, [GpuUse(index=1, utilization=0.5, memory_bytes=10)], [])
    rank = RankUse(rank=3, cpu_cores=1.5, memory_bytes=7)
    second = use(0.6, [GpuUse(index=1, utilization=1.0, power_watts=300.0)], [rank])
    gpu = GpuUse(index=1, utilization=0.75, memory_bytes=10, power_watts=300.0)
    assert mean_use([first, second]) == use(0.4, [gpu], [rank])


def test_a_machine_without_a_driver_has_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", refuse)
    assert NvidiaGpus(None).read() == []


@pytest.mark.parametrize(
    ("visible", "handles"), [(None, ["index 0", "index 1"]), ("1,GPU-7", ["index 1", "id GPU-7"]), ("", [])]
)
def test_gpus_have_the_trainers_index_and_what_a_driver_reports(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, handles: list[str]
) -> None:
    """The functions of NVIDIA's binding are replaced, since no machine of the tests has two GPUs and a missing response."""

    def not_supported(handle: str) -> int:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    asked: list[str] = []
    responses: dict[str, Callable[..., object]] = {
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: f"index {index}",
        "nvmlDeviceGetHandleByUUID": lambda name: f"id {name}",
        "nvmlDeviceGetUtilizationRates": lambda handle: asked.append(handle) or SimpleNamespace(gpu=75),
        "nvmlDeviceGetMemoryInfo": not_supported,
        "nvmlDeviceGetPowerUsage": lambda handle: 412_500,
        "nvmlDeviceGetTemperature": lambda handle, sensor: 61,
    }
    for name, response in responses.items():
        monkeypatch.setattr(pynvml, name, response)
    found = NvidiaGpus(visible).read()
    assert asked == handles
    assert found == [
        GpuUse(index=index, utilization=0.75, power_watts=412.5, temperature_celsius=61)
        for index in range(len(handles))
    ]


def test_the_agent_sends_the_use_of_the_node_and_of_the_ranks(api: ScriptedApi, machine: Machine) -> None:
    run = api.place(steps=2_000, ranks=2)
    machine.start_agent()
    # A rank that starts later is missing in the first measurements.
    wait_for(lambda: any(len(use["ranks"]) == 2 for use in run.hardware), "the use of both ranks", 60.0)
    wait_for(lambda: api.heartbeats[-1].get("hardware") is not None, "the use of the node")
    ranks = next(use["ranks"] for use in run.hardware if len(use["ranks"]) == 2)
    assert [rank["rank"] for rank in ranks] == [0, 1]
    assert all(rank["memory_bytes"] > 2**20 for rank in ranks)
    assert api.heartbeats[-1]["hardware"]["memory_total_bytes"] == psutil.virtual_memory().total
