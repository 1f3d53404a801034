"""The Celery task of datasets: one job per message.

A message only says that a row has work to do; the row says what. So messages may be lost, repeated or reordered: each
runs at most one job, and a finished job sends the message for the next.
"""

from contextlib import suppress
from functools import partial
from uuid import UUID

from celery import Celery

from trainwright_backend.core.background import contain
from trainwright_backend.core.db import Database
from trainwright_backend.core.errors import AppError
from trainwright_backend.core.object_store import LocalStore
from trainwright_backend.datasets.job_queue import JOB_TASK, JobKind
from trainwright_backend.datasets.jobs.dispatch import next_job, run_job
from trainwright_backend.datasets.jobs.outcomes import record_failure, release_job


def register_tasks(app: Celery, database: Database, store: LocalStore) -> None:
    """Register the task with ``app``."""

    def run(kind: str, row_id: str) -> None:
        run_next_job(database, store, JobKind(kind), UUID(row_id))

    app.task(run, name=JOB_TASK, shared=False)


def run_next_job(database: Database, store: LocalStore, kind: JobKind, row_id: UUID) -> bool:
    """Run a row's next job, if there is one that no other worker runs.

    Returns:
        Whether there was a job.
    """
    with database.write() as session:
        job = next_job(session, kind, row_id)
    if job is None:
        return False
    error = contain(
        partial(run_job, database, store, job),
        "job failed",
        expected=(AppError,),
        kind=kind,
        row=str(row_id),
        job=type(job).__name__,
    )
    if isinstance(error, AppError):
        with suppress(AppError):
            release_job(database, job)
    elif error is not None:
        record_failure(database, job, error)
    return True
