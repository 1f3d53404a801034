"""The Celery task of datasets: one step a message.

A message says only that there is something to do for a row; the rows say what. So messages may be lost, repeated and
reordered: each makes at most one step, and a step that is done sends for the next.
"""

from contextlib import suppress
from uuid import UUID

import structlog
from celery import Celery

from trainwright_backend.core.db import Database
from trainwright_backend.core.errors import AppError
from trainwright_backend.core.storage import LocalStore
from trainwright_backend.datasets.messages import STEP_TASK, Work
from trainwright_backend.datasets.steps import note_failure, put_back
from trainwright_backend.datasets.work import do_step, next_step

log = structlog.get_logger()


def register_tasks(app: Celery, database: Database, store: LocalStore) -> None:
    """Make ``app`` a worker for datasets."""

    def step(work: str, row_id: str) -> None:
        make_step(database, store, Work(work), UUID(row_id))

    app.task(step, name=STEP_TASK, shared=False)


def make_step(database: Database, store: LocalStore, work: Work, row_id: UUID) -> bool:
    """Make the next step for a row, if there is one that nobody else makes.

    Returns:
        Whether there was one.
    """
    with database.write() as session:
        step = next_step(session, work, row_id)
    if step is None:
        return False
    try:
        do_step(database, store, step)
    except AppError as error:
        log.warning("a step was put back", work=work, row=str(row_id), error=error.detail)
        with suppress(AppError):
            put_back(database, step)
    except Exception as error:
        log.exception("a step failed", work=work, row=str(row_id), step=type(step).__name__)
        note_failure(database, step, error)
    return True
