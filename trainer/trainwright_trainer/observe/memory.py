"""Memory that this rank occupies, and the name of what it computes on."""

from __future__ import annotations

import os
import platform
import resource
from functools import cache
from pathlib import Path

import torch

_MEMORY = Path("/proc/self/statm")
_CPUS = Path("/proc/cpuinfo")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def memory_bytes(device: torch.device) -> int:
    """On a GPU the most that tensors occupied since ``forget_peak``, or ever; on a CPU the process's resident memory now.

    Where the kernel has no ``/proc`` (macOS), it is the most that was ever resident.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if not _kernel_tells(_MEMORY):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS, the one such system
    return int(os.pread(_open_memory(os.getpid(), _MEMORY), 200, 0).split()[1]) * _PAGE_BYTES


@cache
def _kernel_tells(path: Path) -> bool:
    return path.exists()


@cache
def _open_memory(process: int, path: Path) -> int:
    """A descriptor of ``process``, which asks of itself: a forked child that read its parent's would read of the parent."""
    assert process == os.getpid()
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


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
