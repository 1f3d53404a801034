"""The use of this machine's hardware, measured every few seconds: of the whole node, and of each attempt's ranks.

Every sample costs about a millisecond per hundred processes of the machine. Figures that a GPU's driver does not report
are left out, as are all GPUs of a machine without NVIDIA's driver. An attempt's samples are collected until its shipper
takes their mean, so that a slow step has the mean over all of it, and nothing is measured twice.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import psutil
import pynvml

from trainwright.contracts.hardware import (
    MAX_CORES,
    MAX_MEMORY_BYTES,
    MAX_SLOTS,
    RANK_PROCESS_PREFIX,
    GpuUse,
    HardwareUse,
    RankUse,
    RunHardwareUse,
)
from trainwright_agent.processes import marked_pids

log = logging.getLogger(__name__)

_MAX_SAMPLES = 720
"""Samples that are stored of an attempt while it makes no step. Older ones are dropped."""

_PRESENT_SECONDS = 60.0
_RANK_PROCESS = re.compile(re.escape(RANK_PROCESS_PREFIX) + r"(\d{1,4})")
_GONE = (psutil.NoSuchProcess, psutil.AccessDenied)


class HardwareMonitor:
    """Measures the hardware when called, and stores the means until they are taken.

    Args:
        data: the agent's data folder; the use of its disk is measured.
    """

    def __init__(self, data: Path) -> None:
        self._data = data
        self._gpus: NvidiaGpus | None = None
        self._clocks: dict[int, _CpuClock] = {}
        self._samples: dict[str, deque[RunHardwareUse]] = {}
        self._lock = threading.Lock()
        self._latest: HardwareUse | None = None
        self._measured = 0.0
        psutil.cpu_percent()  # the use of the CPU is measured from one call to the next

    def sample(self, gpus_by_marker: Mapping[str, Sequence[int]]) -> None:
        """Measure the node and its attempts.

        Args:
            gpus_by_marker: the live attempts, each with the indices of its GPUs.
        """
        if self._gpus is None:  # not earlier: a driver in trouble may block
            self._gpus = NvidiaGpus(os.environ.get("CUDA_VISIBLE_DEVICES"))
        node = self._node(self._gpus)
        pids = marked_pids()
        ranks = {marker: self._ranks(pids.get(marker, [])) for marker in gpus_by_marker}
        alive = {pid for marker in gpus_by_marker for pid in pids.get(marker, [])}
        self._clocks = {pid: clock for pid, clock in self._clocks.items() if pid in alive}
        with self._lock:
            self._latest, self._measured = node, time.monotonic()
            self._samples = {
                marker: self._samples.get(marker, deque(maxlen=_MAX_SAMPLES)) for marker in ranks
            }
            for marker, gpus in gpus_by_marker.items():
                mine = [gpu for gpu in node.gpus if gpu.index in gpus]
                fields = {**dict(node), "gpus": mine, "ranks": ranks[marker]}
                self._samples[marker].append(RunHardwareUse.model_validate(fields))

    def present(self) -> HardwareUse | None:
        """The node's use in the last sample; None if that is too old, because a driver does not respond."""
        is_recent = time.monotonic() - self._measured < _PRESENT_SECONDS
        return self._latest if is_recent else None

    def take(self, marker: str) -> RunHardwareUse | None:
        """The mean of an attempt's samples since the last call; None if there are none."""
        with self._lock:
            samples = list(self._samples.get(marker, ()))
            self._samples.pop(marker, None)
        return mean_use(samples) if samples else None

    def _node(self, gpus: NvidiaGpus) -> HardwareUse:
        memory, disk = psutil.virtual_memory(), psutil.disk_usage(str(self._data))
        return HardwareUse(
            cpu_utilization=min(1.0, max(0.0, psutil.cpu_percent() / 100)),
            memory_bytes=memory.total - memory.available,
            memory_total_bytes=memory.total,
            disk_bytes=disk.used,
            disk_total_bytes=disk.used + disk.free,
            gpus=gpus.read(),
        )

    def _ranks(self, pids: Sequence[int]) -> list[RankUse]:
        """The use of each rank, its child processes included. A rank whose processes were not seen before is left out,
        since its CPU time is known from the second time on."""
        at = time.monotonic()
        cores: dict[int, float] = {}
        memory: dict[int, int] = {}
        new: set[int] = set()
        for pid, rank in ranks_of(pids).items():
            with suppress(*_GONE):
                process = psutil.Process(pid)
                times, started = process.cpu_times(), process.create_time()
                clock = _CpuClock(started, at, times.user + times.system)
                before = self._clocks.get(pid)
                self._clocks[pid] = clock
                memory[rank] = memory.get(rank, 0) + process.memory_info().rss
                if before is None or before.started != started:
                    new.add(rank)
                else:
                    cores[rank] = cores.get(rank, 0.0) + clock.cores_since(before)
        return [
            RankUse(
                rank=rank,
                cpu_cores=min(float(MAX_CORES), cores[rank]),
                memory_bytes=min(MAX_MEMORY_BYTES, memory[rank]),
            )
            for rank in sorted(cores)
            if rank not in new
        ]


@dataclass(frozen=True)
class _CpuClock:
    """CPU time of a process at some moment."""

    started: float
    at: float
    seconds: float

    def cores_since(self, before: _CpuClock) -> float:
        return max(0.0, self.seconds - before.seconds) / max(1e-3, self.at - before.at)


def ranks_of(pids: Iterable[int]) -> dict[int, int]:
    """The rank that each of these processes belongs to. A rank's own process has its name; others have it as an ancestor.

    A trainer can name its processes as it likes, so numbers that no report can have are left out.
    """
    found: dict[int, int] = {}
    parents: dict[int, int] = {}
    for pid in pids:
        with suppress(*_GONE):
            process = psutil.Process(pid)
            parents[pid] = process.ppid()
            named = _RANK_PROCESS.fullmatch(process.name())
            if named and int(named[1]) < MAX_SLOTS:
                found[pid] = int(named[1])
    for pid in parents:
        ancestor, seen = pid, {pid}
        while ancestor not in found and (ancestor := parents.get(ancestor, 0)) not in seen and ancestor:
            seen.add(ancestor)
        if ancestor in found:
            found[pid] = found[ancestor]
    return found


def mean_use(samples: Sequence[RunHardwareUse]) -> RunHardwareUse:
    """The mean of each value; a GPU or rank counts in the samples that have it."""
    gpus: dict[int, list[GpuUse]] = {}
    ranks: dict[int, list[RankUse]] = {}
    for sample in samples:
        for gpu in sample.gpus:
            gpus.setdefault(gpu.index, []).append(gpu)
        for rank in sample.ranks:
            ranks.setdefault(rank.rank, []).append(rank)
    return RunHardwareUse(
        cpu_utilization=fmean(sample.cpu_utilization for sample in samples),
        memory_bytes=round(fmean(sample.memory_bytes for sample in samples)),
        memory_total_bytes=samples[-1].memory_total_bytes,
        disk_bytes=round(fmean(sample.disk_bytes for sample in samples)),
        disk_total_bytes=samples[-1].disk_total_bytes,
        gpus=[_mean_gpu(index, of_gpu) for index, of_gpu in sorted(gpus.items())],
        ranks=[
            RankUse(
                rank=number,
                cpu_cores=fmean(use.cpu_cores for use in of_rank),
                memory_bytes=round(fmean(use.memory_bytes for use in of_rank)),
            )
            for number, of_rank in sorted(ranks.items())
        ],
    )


def _mean_gpu(index: int, samples: Sequence[GpuUse]) -> GpuUse:
    memory = _mean_known(gpu.memory_bytes for gpu in samples)
    return GpuUse(
        index=index,
        utilization=_mean_known(gpu.utilization for gpu in samples),
        memory_bytes=None if memory is None else round(memory),
        power_watts=_mean_known(gpu.power_watts for gpu in samples),
        temperature_celsius=_mean_known(gpu.temperature_celsius for gpu in samples),
    )


def _mean_known(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


@dataclass
class NvidiaGpus:
    """The GPUs that runs use, with the index that the trainer gives them: in order of their PCI bus, or as listed.

    Args:
        visible: ``CUDA_VISIBLE_DEVICES``: indices or ids; None for all GPUs.
    """

    visible: str | None
    _handles: dict[int, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            pynvml.nvmlInit()
            self._handles = dict(enumerate(self._found()))
        except pynvml.NVMLError as error:
            log.info("the use of GPUs is not measured: %s", error)

    def read(self) -> list[GpuUse]:
        """What each GPU reports."""
        return [_read_gpu(index, handle) for index, handle in self._handles.items()]

    def _found(self) -> Iterator[Any]:
        if self.visible is None:
            yield from map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
            return
        for name in filter(None, (name.strip() for name in self.visible.split(","))):
            by_index = name.isascii() and name.isdecimal()
            yield (
                pynvml.nvmlDeviceGetHandleByIndex(int(name))
                if by_index
                else pynvml.nvmlDeviceGetHandleByUUID(name)
            )


def _read_gpu(index: int, handle: Any) -> GpuUse:
    rates = _reported(lambda: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    memory = _reported(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).used)
    milliwatts = _reported(lambda: pynvml.nvmlDeviceGetPowerUsage(handle))
    temperature = _reported(lambda: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU))
    return GpuUse(
        index=index,
        utilization=None if rates is None else min(1.0, rates / 100),
        memory_bytes=memory,
        power_watts=None if milliwatts is None else milliwatts / 1_000,
        temperature_celsius=temperature,
    )


def _reported(query: Callable[[], int]) -> int | None:
    """What the driver answers; None if this GPU, or a part of it, does not report that."""
    try:
        return query()
    except pynvml.NVMLError:
        return None
