"""Killing a supervisor that missed its deadline, and everything that it started.

The agent does it, and so does the supervisor's own guard (`supervisor.deadline_guard`), in case the agent is dead too. A
deadline in the past does not prove that the supervisor hangs: after a suspend, all processes continue at the same time,
and a healthy supervisor needs its grace period to end the attempt. So the watchdog counts from its first check after
the deadline, and starts again after a late check.
"""

from __future__ import annotations

import logging
import signal

from trainwright_agent import processes
from trainwright_agent.processes import boot_id, boottime
from trainwright_agent.workspace import AttemptFolder

log = logging.getLogger(__name__)


class Watchdog:
    """Remembers, for each claim, the first and last check after its deadline."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, float]] = {}

    def is_due(self, folder: AttemptFolder) -> bool:
        """Whether the supervisor has had enough time to stop everything. Call it on every pass over the folder."""
        now, deadline = boottime(), folder.deadline()
        if deadline is None or deadline.boot_id != boot_id() or now < deadline.deadline:
            self._seen.pop(folder.claim_id, None)
            return False
        allowed_seconds = deadline.kill_at - deadline.deadline
        first, last = self._seen.get(folder.claim_id, (now, now))
        if now - last > allowed_seconds / 2:
            first = now
        self._seen[folder.claim_id] = first, now
        return now - first >= allowed_seconds


def kill_overdue(folder: AttemptFolder) -> None:
    """Kill a supervisor that missed its deadline, suspended or not, if processes of the attempt are alive."""
    if not processes.pids_of(folder.marker):
        return
    log.error("%s: the supervisor missed its deadline: killing it and its children", folder.marker)
    kill_supervisor(folder)
    processes.sweep_once(folder.marker)


def kill_supervisor(folder: AttemptFolder) -> None:
    """SIGKILL the supervisor that has locked the folder, if any."""
    supervisor = folder.supervisor()
    if supervisor is not None and supervisor.boot_id == processes.boot_id():
        processes.send_signal(supervisor.pid, signal.SIGKILL, folder.is_locked)
