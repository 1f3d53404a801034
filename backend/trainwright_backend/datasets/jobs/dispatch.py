"""Choosing the next job of a row, and running it.

A worker takes a lease in a short transaction, runs the job without one, and writes the outcome guarded by the lease. So a
worker that was presumed dead cannot change anything.
"""

from collections.abc import Callable
from uuid import UUID

from trainwright.prepare.documents import UnusableDataError
from trainwright.prepare.token_shards import Cancelled
from trainwright_backend.core.db import Database, Write
from trainwright_backend.core.object_store import ObjectStore
from trainwright_backend.datasets.job_queue import JobKind
from trainwright_backend.datasets.jobs.curation import CurateVersion, curate_version, take_curation_job
from trainwright_backend.datasets.jobs.job import Job, JobCancelledError
from trainwright_backend.datasets.jobs.leases import held_lease
from trainwright_backend.datasets.jobs.outcomes import delete_leftovers, fail_job, release_job
from trainwright_backend.datasets.jobs.parsing import ParseFile, parse_file, take_parse_job
from trainwright_backend.datasets.jobs.preparation_completion import complete_preparation
from trainwright_backend.datasets.jobs.preparation_jobs import (
    CompletePreparation,
    PlanPreparation,
    TokenizeChunk,
    take_preparation_job,
)
from trainwright_backend.datasets.jobs.preparation_plan import plan_preparation
from trainwright_backend.datasets.jobs.tokenization import tokenize_chunk


def next_job(session: Write, kind: JobKind, row_id: UUID) -> Job | None:
    """Take the lease of a row's next job, if there is one that no worker runs."""
    match kind:
        case JobKind.PARSE:
            return take_parse_job(session, row_id)
        case JobKind.CURATE:
            return take_curation_job(session, row_id)
        case JobKind.PREPARE:
            return take_preparation_job(session, row_id)


def never() -> bool:
    return False


def run_job(
    database: Database,
    store: ObjectStore,
    job: Job,
    give_way: Callable[[], bool] = never,
    is_stopping: Callable[[], bool] = never,
) -> None:
    """Run a job that `next_job` returned, and write its outcome.

    Args:
        give_way: a long job calls it between two chunks. If it returns True, the job stops there, and the row's next
            job continues.
        is_stopping: whether the worker is about to end, so that the job has to be given back.
    """
    unusable = None
    with held_lease(database, job.lease) as was_cancelled:

        def is_cancelled() -> bool:
            return was_cancelled() or is_stopping()

        try:
            match job:
                case ParseFile():
                    parse_file(database, store, job, is_cancelled, give_way)
                case CurateVersion():
                    unusable = curate_version(database, store, job, is_cancelled, give_way)
                case PlanPreparation():
                    plan_preparation(database, store, job, is_cancelled)
                case TokenizeChunk():
                    tokenize_chunk(database, store, job, is_cancelled)
                case CompletePreparation():
                    unusable = complete_preparation(database, store, job, is_cancelled)
        except UnusableDataError as error:
            unusable = str(error)
        except (JobCancelledError, Cancelled):
            release_job(database, job)
    if unusable is not None:
        fail_job(database, job, unusable)
    delete_leftovers(database, store, job)
