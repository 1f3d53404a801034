"""Memory that this rank occupies, and the name of what it computes on."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import torch


def memory_bytes(device: torch.device) -> int:
    """On a GPU the most that tensors ever occupied; on a CPU the process's resident memory now."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def device_name(device: torch.device) -> str:
    """Name of the device, as its driver or the kernel gives it."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_name()


def cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()
