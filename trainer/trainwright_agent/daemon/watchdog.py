"""Decides when the agent must kill a supervisor that missed its deadline.

A deadline in the past does not prove a hung supervisor: after a suspend, supervisor and agent wake together, and a
healthy supervisor needs its grace period to end the attempt. So the watchdog counts from its first check after the
deadline, and starts over whenever a check comes late.
"""

from __future__ import annotations

from trainwright_agent.processes import boot_id, boottime
from trainwright_agent.workspace import AttemptFolder


class Watchdog:
    """Remembers, for each claim, the first and last check after its deadline."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, float]] = {}

    def is_due(self, folder: AttemptFolder) -> bool:
        """Whether the supervisor has had its time to stop everything. Call it on every pass over the folder."""
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
