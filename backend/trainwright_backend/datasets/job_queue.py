"""The queue of dataset jobs: parse a file, curate a version, prepare tokens.

The rows are the queue: `due_rows` finds those with a job that no worker runs, and `jobs.round_robin` chooses among them. A
message only says that there is one. Messages may be lost, repeated or reordered: workers also check the rows regularly,
and the control loop sends messages again for rows that make no progress (`resend_stale`).
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from sqlalchemy import ColumnElement, Select, and_, exists, or_, select, update

from trainwright.contracts.api.datasets import PreparationState, VersionState
from trainwright_backend.core.db import Read, Write, now
from trainwright_backend.core.message_queue import enqueue_task
from trainwright_backend.datasets.tables import (
    Dataset,
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

MAX_WATCHED = 20
"""Due rows of a kind in which signs of a worker are looked for."""

STALE_AFTER = timedelta(seconds=20)
"""Messages are sent again after this time without progress or a renewed lease."""

RETRY_AFTER = timedelta(seconds=10)
"""Pause after a job that failed. Shorter than `STALE_AFTER`, after which sending again counts as activity."""

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


def due_rows(kind: JobKind) -> Select[UUID, UUID, datetime]:
    """Rows with a job that no worker runs: team, id, and the last activity. A failed job waits before it is retried."""
    match kind:
        case JobKind.PARSE:
            return select(ParsedFile.team_id, ParsedFile.id, ParsedFile.last_activity).where(
                ParsedFile.state.in_(PENDING_VERSION), _is_free(ParsedFile), _may_repeat(ParsedFile)
            )
        case JobKind.CURATE:
            return (
                select(Dataset.team_id, DatasetVersion.id, DatasetVersion.last_activity)
                .join(Dataset, Dataset.id == DatasetVersion.dataset_id)
                .where(*_ready_to_curate(), _is_free(DatasetVersion), _may_repeat(DatasetVersion))
            )
        case JobKind.PREPARE:
            return (
                select(Preparation.team_id, Preparation.id, Preparation.last_activity)
                .join(DatasetVersion, DatasetVersion.id == Preparation.version_id)
                .where(*_ready_to_prepare(), _has_free_job(), _may_repeat(Preparation))
            )


def idle_jobs(session: Read) -> dict[UUID, datetime]:
    """Rows with a job that is due, each with its last activity, if no worker runs any job at this moment."""
    tables: tuple[JobTable | type[PreparationChunk], ...] = (
        ParsedFile,
        DatasetVersion,
        Preparation,
        PreparationChunk,
    )
    if any(session.scalar(select(exists().where(table.leased_until >= now()))) for table in tables):
        return {}
    return {
        row_id: last_activity
        for kind in JobKind
        for _, row_id, last_activity in session.execute(_first(due_rows(kind))).all()
    }


def was_worked_on(before: dict[UUID, datetime], after: dict[UUID, datetime]) -> bool:
    """Whether a worker has taken one of the jobs that were idle ``before``. `resend_stale` only touches rows later."""
    return any(
        row_id not in after or timedelta(0) < after[row_id] - last_activity < STALE_AFTER
        for row_id, last_activity in before.items()
    )


def _first(rows: Select[UUID, UUID, datetime]) -> Select[UUID, UUID, datetime]:
    return rows.order_by(rows.selected_columns[1]).limit(MAX_WATCHED)


def resend_stale(session: Write) -> int:
    """Send messages again for rows without progress, because a worker or the broker lost the earlier ones.

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
    stale = DatasetVersion.last_activity < now() - STALE_AFTER
    return select(DatasetVersion.id).where(*_ready_to_curate(), stale)


def _stale_preparations() -> Select[UUID]:
    return (
        select(Preparation.id)
        .join(DatasetVersion, DatasetVersion.id == Preparation.version_id)
        .where(*_ready_to_prepare(), Preparation.last_activity < now() - STALE_AFTER)
    )


def _ready_to_curate() -> tuple[ColumnElement[bool], ...]:
    """Versions whose files are all parsed, and versions of older releases, which were never parsed."""
    being_parsed = exists(
        select(DatasetFile.position)
        .join(ParsedFile, ParsedFile.id == DatasetFile.parsed_file_id)
        .where(DatasetFile.version_id == DatasetVersion.id, ParsedFile.state.in_(PENDING_VERSION))
    )
    return DatasetVersion.state.in_(PENDING_VERSION), ~being_parsed


def _ready_to_prepare() -> tuple[ColumnElement[bool], ...]:
    """Includes those whose version failed in the meantime: their next job marks them as failed."""
    ended = (VersionState.READY, VersionState.FAILED)
    return Preparation.state.in_(PENDING_PREPARATION), DatasetVersion.state.in_(ended)


def _has_free_job() -> ColumnElement[bool]:
    """Whether a preparation, with its version, has a job that no worker runs: a chunk, or planning or completing it."""
    free_chunk = exists(
        select(PreparationChunk.number).where(
            PreparationChunk.preparation_id == Preparation.id,
            PreparationChunk.done.is_(False),
            _is_free(PreparationChunk),
        )
    )
    planned = Preparation.shards_total.is_not(None)
    tokenizing = and_(planned, Preparation.shards_done < Preparation.shards_total)
    return or_(
        DatasetVersion.state == VersionState.FAILED,
        and_(tokenizing, free_chunk),
        and_(~tokenizing, _is_free(Preparation)),
    )


def _may_repeat(table: JobTable) -> ColumnElement[bool]:
    return or_(table.failures == 0, table.last_activity < now() - RETRY_AFTER)


def _is_free(table: JobTable | type[PreparationChunk]) -> ColumnElement[bool]:
    return or_(table.lease.is_(None), table.leased_until < now())


def _free_chunks(session: Read, preparation_id: UUID) -> Sequence[int]:
    return session.scalars(
        select(PreparationChunk.number)
        .where(
            PreparationChunk.preparation_id == preparation_id,
            PreparationChunk.done.is_(False),
            _is_free(PreparationChunk),
        )
        .limit(MAX_MESSAGES)
    ).all()
