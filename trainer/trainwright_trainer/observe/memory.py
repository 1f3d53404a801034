"""Memory that this rank occupies, and the name of what it computes on."""

from __future__ import annotations

import os
import platform
import resource
from pathlib import Path

import torch

_MEMORY = Path("/proc/self/statm")
_CPUS = Path("/proc/cpuinfo")


def memory_bytes(device: torch.device) -> int:
    """On a GPU the most that tensors occupied since ``forget_peak``, or ever; on a CPU the process's resident memory now.

    Where the kernel has no ``/proc`` (macOS), it is the most that was ever resident.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if not _MEMORY.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS, the one such system
    return int(_MEMORY.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


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
