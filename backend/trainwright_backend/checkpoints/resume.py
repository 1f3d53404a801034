"""Resuming a run whose checkpoints must fit the storage of its team."""

from uuid import UUID

from trainwright_backend.checkpoints.total_storage import check_room
from trainwright_backend.core.db import Write
from trainwright_backend.runs.pause import resume_run
from trainwright_backend.runs.tables import Run


def resume_with_room(session: Write, team_id: UUID, run_id: str, by: str) -> Run:
    """As `resume_run`, if the storage of the team has room for the run's next checkpoints.

    Raises:
        AppError: 403 ``storage_exceeded``: it has not; 403 ``quota_exceeded``.
        Conflict: ``run_not_paused``.
    """
    run = resume_run(session, team_id, run_id, by)
    check_room(session, run)
    return run
