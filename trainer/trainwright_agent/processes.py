"""Finding and killing the processes of an attempt; the boot-time clock and the boot id.

Every process of an attempt has the *marker* ``TRAINWRIGHT_ATTEMPT=<run>/<claim id>`` in its environment. Process groups
do not reach all of them (torch starts every rank in its own session) and parents may be gone, so a sweep searches for
the marker in ``/proc/*/environ``. A sweep ends when two complete scans in a row find nothing: a process may fork behind
a scan that has already passed its pid.

Signals are sent through pidfds, so a pid that the kernel has reused is never hit. Nothing here calls ``waitpid(-1)``,
which would steal the exit codes of ``subprocess``'s children.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

MARKER_VARIABLE = "TRAINWRIGHT_ATTEMPT"
PARENT_VARIABLE = "TRAINWRIGHT_PARENT"
"""Pid of the parent that a child must die with. The child compares it with its ppid after requesting the signal."""

_PR_SET_PDEATHSIG = 1
_SCAN_PAUSE_SECONDS = 0.05


def boottime() -> float:
    """Seconds since boot, including time suspended; it never jumps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def boot_id() -> str:
    """Id of this boot, which distinguishes stored pids and boot times from those of earlier boots."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def die_with_parent(parent: int | None, signum: signal.Signals = signal.SIGKILL) -> None:
    """Let the kernel send ``signum`` to this process when the thread that forked it ends.

    Args:
        parent: pid of the expected parent. If the parent is another process, the expected one died before the
            request, and this process exits at once. None skips the check.
        signum: the signal.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(signum), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if parent is not None and os.getppid() != parent:
        sys.exit("The parent process is gone.")


def marker(run_id: str, claim_id: str) -> str:
    return f"{run_id}/{claim_id}"


def child_environment(attempt_marker: str) -> dict[str, str]:
    """Environment of a child process that works for an attempt, without the agent's own settings and tokens."""
    return trainer_environment() | {MARKER_VARIABLE: attempt_marker, PARENT_VARIABLE: str(os.getpid())}


def trainer_environment() -> dict[str, str]:
    """Environment of every trainer process. GPUs must have the same index in all of them."""
    private = ("TRAINWRIGHT_", "OTEL_")  # the latter may contain a token for the collector of traces
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(private)}
    return inherited | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def marked_pids() -> dict[str, list[int]]:
    """Pids of live processes that carry a marker, by marker. Zombies no longer have an environment."""
    found: dict[str, list[int]] = {}
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and (value := _marker_of(int(process.name))) is not None:
            found.setdefault(value, []).append(int(process.name))
    return found


def pids_of(attempt_marker: str) -> list[int]:
    return marked_pids().get(attempt_marker, [])


def signal_marked(attempt_marker: str, signum: signal.Signals) -> int:
    """Send ``signum`` to every process of the attempt.

    Returns:
        How many processes were found.
    """
    pids = pids_of(attempt_marker)
    for pid in pids:
        send_signal(pid, signum, lambda pid=pid: _marker_of(pid) == attempt_marker)  # type: ignore[misc]
    return len(pids)


def sweep_once(attempt_marker: str) -> bool:
    """SIGKILL the attempt's processes; returns True if two scans in a row found none."""
    return not signal_marked(attempt_marker, signal.SIGKILL) and not pids_of(attempt_marker)


def sweep(attempt_marker: str) -> None:
    """SIGKILL the attempt's processes until none is left, even if the kernel takes long."""
    while not sweep_once(attempt_marker):
        time.sleep(_SCAN_PAUSE_SECONDS)


def stop_marked(attempt_marker: str, grace_seconds: float, reap: Callable[[], object]) -> None:
    """Stop all processes of the attempt: SIGTERM, then SIGKILL after the grace period.

    Args:
        attempt_marker: the attempt's marker.
        grace_seconds: time between the two signals.
        reap: called repeatedly to collect the caller's own children.
    """
    killing_at = boottime() + grace_seconds
    left = signal_marked(attempt_marker, signal.SIGTERM)
    while left and boottime() < killing_at:
        time.sleep(min(_SCAN_PAUSE_SECONDS, grace_seconds))
        reap()
        left = len(pids_of(attempt_marker))
    sweep(attempt_marker)
    reap()


def send_signal(pid: int, signum: signal.Signals, is_target: Callable[[], bool]) -> bool:
    """Send ``signum`` to ``pid`` if ``is_target`` is true once a pidfd refers to the process.

    Returns:
        Whether the signal was sent.
    """
    with _pidfd(pid) as descriptor:
        if descriptor is None or not is_target():
            return False
        try:
            signal.pidfd_send_signal(descriptor, signum)
        except ProcessLookupError:
            return False
        return True


@contextmanager
def _pidfd(pid: int) -> Iterator[int | None]:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _marker_of(pid: int) -> str | None:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except (ProcessLookupError, PermissionError, FileNotFoundError):
        return None
    except OSError as error:
        if error.errno in (errno.ESRCH, errno.EIO):
            return None
        raise
    prefix = MARKER_VARIABLE.encode() + b"="
    for variable in environment.split(b"\0"):
        if variable.startswith(prefix):
            return variable[len(prefix) :].decode(errors="replace")
    return None
