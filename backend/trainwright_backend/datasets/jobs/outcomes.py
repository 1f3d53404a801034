"""Outcomes of jobs that fail, are cancelled, or whose rows were deleted.

Parsing, curating and preparing fail in the same ways. Errors in the data are final and described in a sentence.
Transient errors are retried a few times. If a worker dies, its job is repeated; if three workers die in the same job,
the job fails.
"""

from sqlalchemy import select

from trainwright.contracts.api.datasets import PreparationState, VersionState
from trainwright_backend.core.db import Database, Write, now, storable
from trainwright_backend.core.object_store import ObjectStore
from trainwright_backend.datasets.job_queue import PENDING_PREPARATION, PENDING_VERSION, JobKind, send_job
from trainwright_backend.datasets.jobs.job import Job
from trainwright_backend.datasets.jobs.leases import MAX_FAILURES, Lease, release
from trainwright_backend.datasets.tables import (
    DatasetFile,
    DatasetVersion,
    ParsedFile,
    Preparation,
    PreparationChunk,
)

MAX_ERROR_CHARACTERS = 2_000
Owner = ParsedFile | DatasetVersion | Preparation


def fail_job(database: Database, job: Job, error: str) -> None:
    """Mark what the job is for as failed: its data cannot be used."""
    with database.write() as session:
        owner = _owner(session, job.lease)
        if release(session, job.lease) and owner is not None:  # otherwise another worker has the job
            mark_failed(session, owner, error, retryable=False)


def record_failure(database: Database, job: Job, error: Exception) -> None:
    """Record a transient error. The job is retried later, a few times."""
    with database.write() as session:
        owner = _owner(session, job.lease)
        if not release(session, job.lease) or owner is None:
            return
        owner.failures += 1
        owner.last_activity = now()
        if owner.failures >= MAX_FAILURES:
            message = str(error)[:500] or type(error).__name__
            sentence = f"{_activity(owner)} failed {MAX_FAILURES} times. Last error: {message}. When it is fixed, {_remedy(owner)}."
            mark_failed(session, owner, sentence, retryable=True)


def release_job(database: Database, job: Job) -> None:
    """Give the lease back, because the job was cancelled or the platform cannot serve it now."""
    with database.write() as session:
        release(session, job.lease)


def delete_leftovers(database: Database, store: ObjectStore, job: Job) -> None:
    """Delete the objects of a row that was deleted while its job ran."""
    with database.read() as session:
        table = Preparation if job.lease.table is PreparationChunk else job.lease.table
        assert table is not PreparationChunk
        is_deleted = session.get(table, job.lease.owner_id) is None
    if is_deleted:
        store.delete_prefix(job.folder)


def mark_failed(session: Write, owner: Owner, error: str, *, retryable: bool) -> None:
    """Mark a parsed file, a version or a preparation as failed, and everything that depends on it."""
    match owner:
        case ParsedFile() if owner.state in PENDING_VERSION:
            owner.state, owner.error = VersionState.FAILED, storable(error)[:MAX_ERROR_CHARACTERS]
            session.flush()
            send_curation_jobs(session, owner)
        case DatasetVersion() if owner.state in PENDING_VERSION:
            mark_version_failed(session, owner, error)
        case Preparation() if owner.state in PENDING_PREPARATION:
            owner.state, owner.error = PreparationState.FAILED, storable(error)[:MAX_ERROR_CHARACTERS]
            owner.retryable = retryable


def mark_version_failed(session: Write, version: DatasetVersion, error: str) -> None:
    """Mark a version as failed, and the preparations that wait for it."""
    version.state, version.error = VersionState.FAILED, storable(error)[:MAX_ERROR_CHARACTERS]
    version.last_activity = now()
    waiting = select(Preparation).where(Preparation.version_id == version.id).with_for_update()
    for preparation in session.scalars(waiting):
        mark_failed(session, preparation, version.error, retryable=False)
    session.flush()


def send_curation_jobs(session: Write, parsed_file: ParsedFile) -> None:
    """Send messages for the versions that wait for a parsed file that is now ready or failed."""
    waiting = (
        select(DatasetVersion.id)
        .join(DatasetFile, DatasetFile.version_id == DatasetVersion.id)
        .where(DatasetFile.parsed_file_id == parsed_file.id, DatasetVersion.state.in_(PENDING_VERSION))
        .distinct()
    )
    for version_id in session.scalars(waiting):
        send_job(session, JobKind.CURATE, version_id)


def _owner(session: Write, lease: Lease) -> Owner | None:
    if lease.table is PreparationChunk:
        return session.get(Preparation, lease.owner_id, with_for_update=True)
    owner = session.get(lease.table, lease.owner_id, with_for_update=True)
    assert owner is None or isinstance(owner, ParsedFile | DatasetVersion | Preparation)
    return owner


def _activity(owner: Owner) -> str:
    match owner:
        case ParsedFile():
            return "Reading"
        case DatasetVersion():
            return "Applying the curation"
    return "Preparing"


def _remedy(owner: Owner) -> str:
    if isinstance(owner, Preparation):
        return "request the preparation again, or submit a run, to continue"
    return "create the version again with the same files"
