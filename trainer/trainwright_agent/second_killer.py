"""When the agent has to kill in a supervisor's place: after a deadline that passed before its own eyes.

A clock that jumps over a deadline proves nothing: after the machine slept, or the agent did, supervisor and agent wake
together, and a healthy supervisor needs its grace period to end the attempt itself. So the agent counts from its first
look after the deadline, and counts anew whenever it looked late.
"""

from __future__ import annotations

from trainwright_agent.processes import boot_id, boottime
from trainwright_agent.workspace import AttemptFolder


class SecondKiller:
    """Remembers, by claim, when it first and last saw a deadline passed."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, float]] = {}

    def is_due(self, folder: AttemptFolder) -> bool:
        """Whether the folder's supervisor had its time to stop everything. Asked at every look at the folder."""
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
