"""Finding and ending the processes of an attempt, and the clock and boot id that survive none of it.

Everything that works for an attempt carries the *marker* ``TRAINWRIGHT_ATTEMPT=<run>/<claim id>`` in its
environment. Process groups do not reach all of it (torch gives every rank a session of its own) and parents may be
gone, so the marker in ``/proc/*/environ`` is what a sweep goes by. A sweep is over only when a whole scan found
nobody twice in a row: between two scans a process may fork below the place already looked at.

Signals go through pidfds, so that a process id which was given to somebody else in between is never hit. Nothing here waits
with ``waitpid(-1)``: beside ``subprocess`` that would swallow the exit codes of its children.
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
"""Pid of the process that a child must die with; it compares its ppid with it after asking for the signal."""

_PR_SET_PDEATHSIG = 1
_SCAN_PAUSE_SECONDS = 0.05


def boottime() -> float:
    """Seconds since boot, the time spent asleep included; it never jumps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def boot_id() -> str:
    """Changes with every boot of the machine, so that pids and boottimes written before are told apart."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def die_with_parent(parent: int | None, signum: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send ``signum`` to this process when the thread that forked it ends.

    Args:
        parent: pid of the process that was meant; when it is no longer the parent, it died before we asked, and this
            process leaves at once. None: not checked.
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
    """Environment for a child of this process that works for an attempt.

    Nothing of the agent's own settings goes down, least of all a token.
    """
    return trainer_environment() | {MARKER_VARIABLE: attempt_marker, PARENT_VARIABLE: str(os.getpid())}


def trainer_environment() -> dict[str, str]:
    """What every process of the trainer gets: what makes its GPUs' numbers must be the same in all of them."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TRAINWRIGHT_")}
    return inherited | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def marked() -> dict[str, list[int]]:
    """Pids of the live processes that carry a marker, by marker. Zombies have no environment any more."""
    found: dict[str, list[int]] = {}
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and (value := _marker_of(int(process.name))) is not None:
            found.setdefault(value, []).append(int(process.name))
    return found


def pids_of(attempt_marker: str) -> list[int]:
    return marked().get(attempt_marker, [])


def signal_marked(attempt_marker: str, signum: signal.Signals) -> int:
    """Send ``signum`` to every process of the attempt.

    Returns:
        How many were found.
    """
    pids = pids_of(attempt_marker)
    for pid in pids:
        send_signal(pid, signum, lambda pid=pid: _marker_of(pid) == attempt_marker)  # type: ignore[misc]
    return len(pids)


def is_swept(attempt_marker: str) -> bool:
    """SIGKILL what is left of the attempt; true when two scans in a row found nothing."""
    return not signal_marked(attempt_marker, signal.SIGKILL) and not pids_of(attempt_marker)


def sweep(attempt_marker: str) -> None:
    """SIGKILL the attempt's processes until none is left, however long the kernel takes."""
    while not is_swept(attempt_marker):
        time.sleep(_SCAN_PAUSE_SECONDS)


def stop_marked(attempt_marker: str, grace_seconds: float, reap: Callable[[], object]) -> None:
    """SIGTERM, grace, SIGKILL: end the attempt's processes, all of them.

    Args:
        attempt_marker: whose processes.
        grace_seconds: between the two signals.
        reap: called now and then, to collect the caller's own children.
    """
    killing_at = boottime() + grace_seconds
    left = signal_marked(attempt_marker, signal.SIGTERM)
    while left and boottime() < killing_at:
        time.sleep(min(_SCAN_PAUSE_SECONDS, grace_seconds))
        reap()
        left = len(pids_of(attempt_marker))
    sweep(attempt_marker)
    reap()


def send_signal(pid: int, signum: signal.Signals, still_meant: Callable[[], bool]) -> bool:
    """Send ``signum`` to ``pid`` if, with the process pinned, ``still_meant`` holds.

    Returns:
        Whether it was sent.
    """
    with _pinned(pid) as descriptor:
        if descriptor is None or not still_meant():
            return False
        try:
            signal.pidfd_send_signal(descriptor, signum)
        except ProcessLookupError:
            return False
        return True


@contextmanager
def _pinned(pid: int) -> Iterator[int | None]:
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
