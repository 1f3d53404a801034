"""One action on many runs. Each succeeds or is refused independently, in its own transaction.

This module is in `checkpoints` because deleting a run checks its checkpoints.
"""

from typing import assert_never
from uuid import UUID

from trainwright.contracts.api.actions import BulkAction, BulkResult, FreedSpace, RunAction
from trainwright_backend.checkpoints.deletion import delete_run
from trainwright_backend.checkpoints.resume import resume_with_room
from trainwright_backend.core.db import Database, Write
from trainwright_backend.core.errors import AppError
from trainwright_backend.runs.edits import tag_run, untag_run
from trainwright_backend.runs.pause import pause_run
from trainwright_backend.runs.service import cancel_run


def act(database: Database, team_id: UUID, action: BulkAction, by: str) -> list[BulkResult]:
    """Do the action for each run, in the requested order."""
    return [_act_on(database, team_id, run_id, action, by) for run_id in action.runs]


def _act_on(database: Database, team_id: UUID, run_id: str, action: BulkAction, by: str) -> BulkResult:
    try:
        with database.write() as session:
            freed = _do(session, team_id, run_id, action, by)
    except AppError as error:
        return BulkResult(run=run_id, done=False, code=error.code, detail=error.detail)
    return BulkResult(run=run_id, done=True, freed=freed)


def _do(session: Write, team_id: UUID, run_id: str, action: BulkAction, by: str) -> FreedSpace | None:
    """Returns the space that a deletion freed."""
    match action.action:
        case RunAction.CANCEL:
            cancel_run(session, team_id, run_id, by)
        case RunAction.PAUSE:
            pause_run(session, team_id, run_id, by)
        case RunAction.RESUME:
            resume_with_room(session, team_id, run_id, by)
        case RunAction.DELETE:
            return delete_run(session, team_id, run_id, dry_run=False)
        case RunAction.TAG:
            tag_run(session, team_id, run_id, action.tags)
        case RunAction.UNTAG:
            untag_run(session, team_id, run_id, action.tags)
        case _:
            assert_never(action.action)
    return None
