"""The memory of a process, as Linux reports it."""

from __future__ import annotations

from pathlib import Path


def reset_peak(pid: int) -> None:
    """Reset the peak resident size (proc_pid_clear_refs(5))."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def status_mib(pid: int, field: str) -> float:
    """A size in the process's status, such as `VmHWM`, its peak resident size; MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (value,) = (line.split()[1] for line in lines if line.startswith(f"{field}:"))
    return int(value) / 1_024
