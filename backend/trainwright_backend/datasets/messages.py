"""Messages that say there is something to do: read a file, survey a version, prepare tokens.

A message is a hint and names a row; the rows say what is done. It may be lost, repeated or reordered. What makes no
progress is sent for again by the control loop (`resend_stale`).
"""

from collections.abc import Sequence
from datetime import timedelta
from enum import StrEnum
from uuid import UUID

from sqlalchemy import Select, exists, or_, select, update

from trainwright.contracts.api.datasets import PreparationState, VersionState
from trainwright_backend.core.db import Read, Write, now
from trainwright_backend.core.enqueue import enqueue_task
from trainwright_backend.datasets.tables import (
    DatasetFile,
    DatasetVersion,
    Preparation,
    PreparationSlice,
    Reading,
)

STEP_TASK = "datasets.step"
"""Celery task that does one step; its arguments are a `Work` and the id of a row."""

MESSAGES = 16
"""Messages out for one preparation at most: workers that may join in at once. Each step sends for the next one."""

SILENCE = timedelta(seconds=20)
"""Without progress or a renewed lease for so long, messages are sent again."""

UNREAD = (VersionState.WAITING, VersionState.READING)
UNPREPARED = (PreparationState.WAITING, PreparationState.WORKING)


class Work(StrEnum):
    """What a message asks for, and so whose id it carries."""

    READ = "read"
    """Of a `Reading`: read its stored file into pieces."""

    SURVEY = "survey"
    """Of a `DatasetVersion`: apply its recipe to its pieces."""

    PREPARE = "prepare"
    """Of a `Preparation`: plan it, tokenise a slice or complete it."""


def send_step(session: Write, work: Work, row_id: UUID, count: int = 1) -> None:
    """Tell ``count`` workers, after the commit, that there is something to do for a row."""
    for _ in range(min(count, MESSAGES)):
        enqueue_task(session, STEP_TASK, work.value, str(row_id))


def resend_stale(session: Write) -> int:
    """Send again for what makes no progress: a worker or the broker lost its messages.

    Returns:
        How many rows were sent for.
    """
    return (
        _resend_all(session, Reading, Work.READ, _stale_readings())
        + _resend_all(session, DatasetVersion, Work.SURVEY, _stale_versions())
        + _resend_all(session, Preparation, Work.PREPARE, _stale_preparations())
    )


Sent = type[Reading] | type[DatasetVersion] | type[Preparation]


def _resend_all(session: Write, table: Sent, work: Work, stale: Select[UUID]) -> int:
    return sum(_resend(session, table, work, row_id) for row_id in session.scalars(stale).all())


def _resend(session: Write, table: Sent, work: Work, row_id: UUID) -> bool:
    still_stale = (table.id == row_id, table.touched < now() - SILENCE)
    if not session.change(update(table).where(*still_stale).values(touched=now())):
        return False
    count = len(_open_slices(session, row_id)) if work is Work.PREPARE else 1
    send_step(session, work, row_id, max(1, count))
    return True


def _stale_readings() -> Select[UUID]:
    return select(Reading.id).where(Reading.state.in_(UNREAD), Reading.touched < now() - SILENCE)


def _stale_versions() -> Select[UUID]:
    """Those whose files are all read; among them the versions of older releases, which were never read."""
    under_way = exists(
        select(DatasetFile.position)
        .join(Reading, Reading.id == DatasetFile.reading_id)
        .where(DatasetFile.version_id == DatasetVersion.id, Reading.state.in_(UNREAD))
    )
    stale = DatasetVersion.touched < now() - SILENCE
    return select(DatasetVersion.id).where(DatasetVersion.state.in_(UNREAD), stale, ~under_way)


def _stale_preparations() -> Select[UUID]:
    """Also those of a version that failed while they were made: their step is to end."""
    ended = (VersionState.READY, VersionState.FAILED)
    return (
        select(Preparation.id)
        .join(DatasetVersion, DatasetVersion.id == Preparation.version_id)
        .where(DatasetVersion.state.in_(ended))
        .where(Preparation.state.in_(UNPREPARED), Preparation.touched < now() - SILENCE)
    )


def _open_slices(session: Read, preparation_id: UUID) -> Sequence[int]:
    lapsed = or_(PreparationSlice.leased_until.is_(None), PreparationSlice.leased_until < now())
    return session.scalars(
        select(PreparationSlice.number)
        .where(PreparationSlice.preparation_id == preparation_id, PreparationSlice.done.is_(False), lapsed)
        .limit(MESSAGES)
    ).all()
