"""Runs the next job of one row, as a worker does in the row's turn."""

from uuid import UUID

from trainwright_backend.core.db import Database
from trainwright_backend.core.local_store import LocalStore
from trainwright_backend.datasets.job_queue import JobKind
from trainwright_backend.datasets.jobs.dispatch import next_job
from trainwright_backend.datasets.jobs.runner import run_and_record_failure


def run_next_job(database: Database, store: LocalStore, kind: JobKind, row_id: UUID) -> bool:
    """Run the next job, unless a worker already runs it. Returns whether there was one."""
    with database.write() as session:
        job = next_job(session, kind, row_id)
    if job is not None:
        run_and_record_failure(database, store, job)
    return job is not None
