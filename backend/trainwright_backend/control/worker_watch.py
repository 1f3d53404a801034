"""Whether a worker runs the data jobs. This is the only check that shows that the workers are dead, stopped or hung.

The database shows it: jobs are due, no worker has a lease, and none has had one since the last check. Short jobs, which
begin and end between two checks, change the rows. This is normal for a moment, so only a longer wait is reported.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID

from trainwright_backend.core.db import Database
from trainwright_backend.datasets.job_queue import idle_jobs, was_worked_on

MAX_WAIT_SECONDS = 60.0
"""A worker polls for jobs every few seconds, and after a failed job within `RETRY_AFTER`."""


class WorkerWatch:
    """Remembers since when jobs have been due without a worker.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock
        self._idle: dict[UUID, datetime] = {}
        self._neglected_since: float | None = None

    def look(self) -> None:
        """Check the database. Call it regularly."""
        with self._database.read() as session:
            idle = idle_jobs(session)
        was_idle, self._idle = self._idle, idle
        if not idle or was_worked_on(was_idle, idle):
            self._neglected_since = None
        elif self._neglected_since is None:
            self._neglected_since = self._clock()

    def waited_seconds(self) -> float:
        """How long jobs have been due without a worker."""
        return 0.0 if self._neglected_since is None else self._clock() - self._neglected_since

    def problem(self) -> str | None:
        """A sentence for users if the jobs have waited too long, otherwise None."""
        waited = self.waited_seconds()
        if waited < MAX_WAIT_SECONDS:
            return None
        since = datetime.now(UTC) - timedelta(seconds=waited)
        return f"takes no jobs, although data has been waiting since {since:%H:%M} UTC. Start a worker, or restart one that hangs."
