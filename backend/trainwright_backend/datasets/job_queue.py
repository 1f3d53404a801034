"""The queue of dataset jobs: parse a file, curate a version, prepare tokens.

A message is a hint that names a row; the row says what there is to do. Messages may be lost, repeated or reordered. The
control loop sends again for rows that make no progress (`resend_stale`).
"""

from collections.abc import Sequence
from datetime import timedelta
from enum import StrEnum
from uuid import UUID

from sqlalchemy import Select, exists, or_, select, update

from trainwright.contracts.api.datasets import PreparationState, VersionState
from trainwright_backend.core.db import Read, Write, now
from trainwright_backend.core.message_queue import enqueue_task
from trainwright_backend.datasets.tables import (
    DatasetFile,
    DatasetVersion,
    ParsedFile,
    Preparation,
    PreparationChunk,
)

JOB_TASK = "datasets.job"
"""Celery task that runs one job. Its arguments are a `JobKind` and the id of a row."""

MAX_MESSAGES = 16
"""Messages in flight for one preparation, and so the workers that may join at once. Each job sends for the next."""

STALE_AFTER = timedelta(seconds=20)
"""Messages are sent again after this time without progress or a renewed lease."""

PENDING_VERSION = (VersionState.WAITING, VersionState.READING)
PENDING_PREPARATION = (PreparationState.WAITING, PreparationState.WORKING)


class JobKind(StrEnum):
    """The kind of job, which determines the table of the row."""

    PARSE = "parse"
    """A `ParsedFile`: read its stored file and split it into chunks."""

    CURATE = "curate"
    """A `DatasetVersion`: apply its curation to its chunks."""

    PREPARE = "prepare"
    """A `Preparation`: plan it, tokenize one chunk, or complete it."""


def send_job(session: Write, kind: JobKind, row_id: UUID, count: int = 1) -> None:
    """Send a message to ``count`` workers, after the commit, that a row has work to do."""
    for _ in range(min(count, MAX_MESSAGES)):
        enqueue_task(session, JOB_TASK, kind.value, str(row_id))


def resend_stale(session: Write) -> int:
    """Send again for rows without progress, whose messages a worker or the broker lost.

    Returns:
        The number of such rows.
    """
    return (
        _resend_all(session, ParsedFile, JobKind.PARSE, _stale_parsed_files())
        + _resend_all(session, DatasetVersion, JobKind.CURATE, _stale_versions())
        + _resend_all(session, Preparation, JobKind.PREPARE, _stale_preparations())
    )


JobTable = type[ParsedFile] | type[DatasetVersion] | type[Preparation]


def _resend_all(session: Write, table: JobTable, kind: JobKind, stale: Select[UUID]) -> int:
    return sum(_resend(session, table, kind, row_id) for row_id in session.scalars(stale).all())


def _resend(session: Write, table: JobTable, kind: JobKind, row_id: UUID) -> bool:
    still_stale = (table.id == row_id, table.last_activity < now() - STALE_AFTER)
    if not session.change(update(table).where(*still_stale).values(last_activity=now())):
        return False
    count = len(_free_chunks(session, row_id)) if kind is JobKind.PREPARE else 1
    send_job(session, kind, row_id, max(1, count))
    return True


def _stale_parsed_files() -> Select[UUID]:
    return select(ParsedFile.id).where(
        ParsedFile.state.in_(PENDING_VERSION), ParsedFile.last_activity < now() - STALE_AFTER
    )


def _stale_versions() -> Select[UUID]:
    """Versions whose files are all parsed, and versions of older releases, which were never parsed."""
    being_parsed = exists(
        select(DatasetFile.position)
        .join(ParsedFile, ParsedFile.id == DatasetFile.parsed_file_id)
        .where(DatasetFile.version_id == DatasetVersion.id, ParsedFile.state.in_(PENDING_VERSION))
    )
    stale = DatasetVersion.last_activity < now() - STALE_AFTER
    return select(DatasetVersion.id).where(DatasetVersion.state.in_(PENDING_VERSION), stale, ~being_parsed)


def _stale_preparations() -> Select[UUID]:
    """Includes those whose version failed meanwhile: their next job marks them as failed."""
    ended = (VersionState.READY, VersionState.FAILED)
    return (
        select(Preparation.id)
        .join(DatasetVersion, DatasetVersion.id == Preparation.version_id)
        .where(DatasetVersion.state.in_(ended))
        .where(Preparation.state.in_(PENDING_PREPARATION), Preparation.last_activity < now() - STALE_AFTER)
    )


def _free_chunks(session: Read, preparation_id: UUID) -> Sequence[int]:
    free = or_(PreparationChunk.leased_until.is_(None), PreparationChunk.leased_until < now())
    return session.scalars(
        select(PreparationChunk.number)
        .where(PreparationChunk.preparation_id == preparation_id, PreparationChunk.done.is_(False), free)
        .limit(MAX_MESSAGES)
    ).all()
