"""Choosing the team whose job a worker runs next: teams take turns, and so do the rows of a team.

So one team's large upload delays the others by one job each, and long jobs give way after a slice of time (`runner`).
Each worker remembers the turns of teams in memory, so after its restart a team loses one turn at most.
"""

from collections.abc import Callable, Collection
from datetime import datetime
from itertools import count
from time import monotonic
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import func, select

from trainwright_backend.core.db import Database, Read
from trainwright_backend.datasets.job_queue import JobKind, due_rows
from trainwright_backend.datasets.jobs.dispatch import next_job
from trainwright_backend.datasets.jobs.job import Job

SLICE_SECONDS = 10.0

MAX_LOST_RACES = 20
"""Rows that other workers take first, until this one looks again later."""


class TakenJob(NamedTuple):
    """A job whose lease this worker has, and the row that it belongs to."""

    job: Job
    kind: JobKind
    row_id: UUID
    team_id: UUID


class RoundRobin:
    """The turns of one worker."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._numbers = count()
        self._last: dict[UUID, int] = {}

    def take(
        self, not_of: UUID | None = None, kinds: Collection[JobKind] = tuple(JobKind)
    ) -> TakenJob | None:
        """Take the lease of the next job; None if no row has one.

        Args:
            not_of: a team whose jobs are left out.
            kinds: of jobs.
        """
        tried: set[UUID] = set()
        while len(tried) <= MAX_LOST_RACES:
            with self._database.read() as session:
                team_id = self._next_team(session, kinds, tried, not_of)
                if team_id is None:
                    return None
                kind, row_id = _longest_idle(session, kinds, team_id, tried)
            tried.add(row_id)
            with self._database.write() as session:
                job = next_job(session, kind, row_id)
            if job is not None:
                self._last[team_id] = next(self._numbers)
                return TakenJob(job, kind, row_id, team_id)
        return None

    def others_wait(self, team_id: UUID) -> bool:
        """Whether another team than ``team_id`` has a job that no worker runs."""
        with self._database.read() as session:
            return any(other != team_id for other in _due_teams(session, tuple(JobKind), set()))

    def _next_team(
        self, session: Read, kinds: Collection[JobKind], tried: set[UUID], not_of: UUID | None
    ) -> UUID | None:
        waiting_since = _due_teams(session, kinds, tried)
        teams = [team_id for team_id in waiting_since if team_id != not_of]
        return min(
            teams, key=lambda team_id: (self._last.get(team_id, -1), waiting_since[team_id]), default=None
        )


class TimeSlice:
    """The time that a job may use while other teams wait.

    A compressed file is decompressed from its start again in each slice, so a slice is at least twice as long as the time
    until its first chunk: at least half of the work is progress.

    Args:
        others_wait: whether another team has a job to run.
    """

    def __init__(self, others_wait: Callable[[], bool]) -> None:
        self._others_wait = others_wait
        self._began = monotonic()
        self._seconds: float | None = None

    def is_over(self) -> bool:
        """Whether to give way; called after each chunk."""
        elapsed = monotonic() - self._began
        if self._seconds is None:
            self._seconds = max(SLICE_SECONDS, 2 * elapsed)
        return elapsed >= self._seconds and self._others_wait()


def _due_teams(session: Read, kinds: Collection[JobKind], tried: set[UUID]) -> dict[UUID, datetime]:
    """Teams with a job that no worker runs, and the last activity of the row that is idle for the longest time."""
    found: dict[UUID, datetime] = {}
    for kind in kinds:
        due = due_rows(kind).subquery()
        wanted = select(due.c.team_id, func.min(due.c.last_activity)).where(due.c.id.not_in(tried))
        for team_id, oldest in session.execute(wanted.group_by(due.c.team_id)):
            found[team_id] = min(oldest, found.get(team_id, oldest))
    return found


def _longest_idle(
    session: Read, kinds: Collection[JobKind], team_id: UUID, tried: set[UUID]
) -> tuple[JobKind, UUID]:
    """The team's row with a job that has been without activity for the longest time."""
    found: list[tuple[datetime, JobKind, UUID]] = []
    for kind in kinds:
        due = due_rows(kind).subquery()
        wanted = select(due.c.last_activity, due.c.id).where(due.c.team_id == team_id, due.c.id.not_in(tried))
        found += [
            (last_activity, kind, row_id)
            for last_activity, row_id in session.execute(
                wanted.order_by(due.c.last_activity, due.c.id).limit(1)
            )
        ]
    _, kind, row_id = min(found, key=lambda item: item[0])
    return kind, row_id
