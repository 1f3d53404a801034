"""CPU time, memory and open files of the platform's processes and of the load generator, which is this process.

The load generator shares the machine with the platform, as the load table says. Each measurement prints its share, so that a
reader can tell whether the generator was the bottleneck.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import fmean, median

import psutil

MB = 1e6


@contextmanager
def cpu_shares(processes: Mapping[str, int]) -> Iterator[None]:
    """Print, after the block, how many cores this process, each of ``processes`` and the entire machine used during it."""
    started, own, before = time.perf_counter(), time.process_time(), _cpu_seconds(processes)
    busy = _busy_seconds()
    yield
    seconds = time.perf_counter() - started
    after = _cpu_seconds(processes)
    shares = {"load generator": (time.process_time() - own) / seconds}
    shares |= {name: (after[name] - before[name]) / seconds for name in processes}
    shown = ", ".join(f"{name} {share:.2f}" for name, share in shares.items())
    machine = (_busy_seconds() - busy) / seconds
    print(f"    cores used: {shown}; the machine {machine:.2f} of {psutil.cpu_count()}", flush=True)


def memory_mb(pid: int) -> float:
    """Resident memory, in MB."""
    return float(psutil.Process(pid).memory_info().rss / MB)


def open_files(pid: int) -> int:
    """Open file descriptors."""
    return int(psutil.Process(pid).num_fds())


def slope(times: Sequence[float], values: Sequence[float]) -> float:
    """Least-squares growth of ``values`` per unit of ``times``."""
    mean_time, mean_value = fmean(times), fmean(values)
    spread = sum((at - mean_time) ** 2 for at in times)
    together = sum((at - mean_time) * (value - mean_value) for at, value in zip(times, values, strict=True))
    return together / spread if spread else 0.0


def growth(values: Sequence[float]) -> float:
    """How much larger the median of the last third is than that of the third before it. The first third warms up."""
    third = max(len(values) // 3, 1)
    return median(values[-third:]) - median(values[-2 * third : -third] or values[-third:])


def _cpu_seconds(processes: Mapping[str, int]) -> dict[str, float]:
    times = {name: psutil.Process(pid).cpu_times() for name, pid in processes.items()}
    return {name: spent.user + spent.system for name, spent in times.items()}


def _busy_seconds() -> float:
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)
