"""The memory that this rank occupies, and the name of its device."""

from __future__ import annotations

import math
import os
import platform
import resource
import time
from functools import cache
from pathlib import Path

import torch

_MEMORY = "/proc/self/statm"
_CPUS = Path("/proc/cpuinfo")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_ASKED_AGAIN_SECONDS = 0.1
"""A call to the kernel costs a short step as much as reading its data, and memory changes slowly."""


def memory_bytes(device: torch.device) -> int:
    """On a GPU the peak of allocated tensors since ``reset_peak_memory``; on a CPU the process's resident memory.

    The latter is at most a tenth of a second old. On kernels without ``/proc`` (macOS) it is the peak so far.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    gauge = _gauge(os.getpid(), _MEMORY)
    if gauge is None:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in bytes on macOS, the only such system
    return gauge.bytes()


@cache
def _gauge(process: int, path: str) -> _Gauge | None:
    """The gauge of ``process``, always the calling one: a forked child must not use its parent's, which reads
    the parent.
    """
    assert process == os.getpid()
    return _Gauge(path) if Path(path).exists() else None


class _Gauge:
    """Resident memory of the process that creates it."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._asked = -math.inf
        self._bytes = 0

    def bytes(self) -> int:
        now = time.monotonic()
        if now - self._asked >= _ASKED_AGAIN_SECONDS:
            self._asked = now
            self._bytes = int(os.pread(self._descriptor, 200, 0).split()[1]) * _PAGE_BYTES
        return self._bytes


def reset_peak_memory(device: torch.device) -> None:
    """Reset the peak, so that ``memory_bytes`` excludes the peak of building the training."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def device_name(device: torch.device) -> str:
    """The device's name, from its driver or the kernel."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_name()


def cpu_name() -> str:
    for line in _CPUS.read_text().splitlines() if _CPUS.exists() else ():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()
