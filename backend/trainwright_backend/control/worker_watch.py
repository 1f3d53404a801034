"""Whether anybody takes the jobs of data. A worker that is dead, stopped or hung takes none, and nothing else would tell.

The rows say so: a job is due, and no worker has a lease. That may be so for a moment, so it counts once it has lasted.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from trainwright_backend.core.db import Database
from trainwright_backend.datasets.job_queue import jobs_are_neglected

LONGEST_WAIT_SECONDS = 60.0
"""A worker looks for jobs every few seconds, and has none for longer than `RETRY_AFTER` after one that failed."""


class WorkerWatch:
    """Remembers since when no worker has taken any job.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock
        self._neglected_since: float | None = None

    def look(self) -> None:
        """Look at the rows. Call it regularly."""
        with self._database.read() as session:
            neglected = jobs_are_neglected(session)
        if not neglected:
            self._neglected_since = None
        elif self._neglected_since is None:
            self._neglected_since = self._clock()

    def problem(self) -> str | None:
        """What is wrong, in a sentence for people, if anything is."""
        waited = 0.0 if self._neglected_since is None else self._clock() - self._neglected_since
        if waited < LONGEST_WAIT_SECONDS:
            return None
        since = datetime.now(UTC) - timedelta(seconds=waited)
        return f"takes no jobs, although data waits since {since:%H:%M} UTC. Start a worker, or restart the one that hangs."
