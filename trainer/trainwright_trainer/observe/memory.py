"""Memory that this rank occupies, and the name of what it computes on."""

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
"""Asking the kernel costs a short step as much as reading its data, and memory does not change from step to step."""


def memory_bytes(device: torch.device) -> int:
    """On a GPU the most that tensors occupied since ``forget_peak``, or ever; on a CPU the process's resident memory.

    The latter is that of now, or of a tenth of a second ago. Where the kernel has no ``/proc`` (macOS), it is the most that was ever resident.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    gauge = _gauge(os.getpid(), _MEMORY)
    if gauge is None:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS, the one such system
    return gauge.bytes()


@cache
def _gauge(process: int, path: str) -> _Gauge | None:
    """That of ``process``, which asks of itself: a forked child that read its parent's would read of the parent."""
    assert process == os.getpid()
    return _Gauge(path) if Path(path).exists() else None


class _Gauge:
    """Resident memory of the process that makes it."""

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


def forget_peak(device: torch.device) -> None:
    """From here on, ``memory_bytes`` tells of what comes, and not of what building a training took for a moment."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def device_name(device: torch.device) -> str:
    """Name of the device, as its driver or the kernel gives it."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_name()


def cpu_name() -> str:
    for line in _CPUS.read_text().splitlines() if _CPUS.exists() else ():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()
