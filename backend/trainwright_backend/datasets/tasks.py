"""The Celery task of datasets: one step of one preparation a message.

A message says only that there is something to do for a preparation; the rows say what. So messages may be lost,
repeated and reordered: each makes at most one step, and a step that is done sends for the next.
"""

from uuid import UUID

import structlog
from celery import Celery

from trainwright_backend.core.db import Database
from trainwright_backend.core.errors import AppError
from trainwright_backend.core.storage import LocalStore
from trainwright_backend.datasets.preparations import PREPARE_TASK
from trainwright_backend.datasets.work import do_step, next_step, note_failure, put_back

log = structlog.get_logger()


def register_tasks(app: Celery, database: Database, store: LocalStore) -> None:
    """Make ``app`` a worker for preparations."""

    def prepare(preparation_id: str) -> None:
        make_step(database, store, UUID(preparation_id))

    app.task(prepare, name=PREPARE_TASK, shared=False)


def make_step(database: Database, store: LocalStore, preparation_id: UUID) -> bool:
    """Make the next step of a preparation, if there is one that nobody else makes.

    Returns:
        Whether there was one.
    """
    with database.write() as session:
        step = next_step(session, preparation_id)
    if step is None:
        return False
    try:
        do_step(database, store, step)
    except AppError as error:
        log.warning("a step of preparing was put back", preparation=str(preparation_id), error=error.detail)
        put_back(database, step)
    except Exception as error:
        log.exception("preparing failed", preparation=str(preparation_id), step=type(step).__name__)
        note_failure(database, step, error)
    return True
