"""One verb for many runs. Each succeeds or is refused by itself, in a transaction of its own.

It stands with the checkpoints because deleting a run looks at them.
"""

from typing import assert_never
from uuid import UUID

from trainwright.contracts.api.verbs import BulkAction, BulkResult, BulkVerb, Freed
from trainwright_backend.checkpoints.removal import delete_run
from trainwright_backend.core.db import Database, Write
from trainwright_backend.core.errors import AppError
from trainwright_backend.runs.edits import tag_run, untag_run
from trainwright_backend.runs.pause import pause_run, resume_run
from trainwright_backend.runs.service import cancel_run


def act(database: Database, team_id: UUID, action: BulkAction, by: str) -> list[BulkResult]:
    """Do the verb for each run, in the order asked."""
    return [_act_on(database, team_id, run_id, action, by) for run_id in action.runs]


def _act_on(database: Database, team_id: UUID, run_id: str, action: BulkAction, by: str) -> BulkResult:
    try:
        with database.write() as session:
            freed = _do(session, team_id, run_id, action, by)
    except AppError as error:
        return BulkResult(run=run_id, done=False, code=error.code, detail=error.detail)
    return BulkResult(run=run_id, done=True, freed=freed)


def _do(session: Write, team_id: UUID, run_id: str, action: BulkAction, by: str) -> Freed | None:
    """Returns what a deletion freed."""
    match action.verb:
        case BulkVerb.CANCEL:
            cancel_run(session, team_id, run_id, by)
        case BulkVerb.PAUSE:
            pause_run(session, team_id, run_id, by)
        case BulkVerb.RESUME:
            resume_run(session, team_id, run_id, by)
        case BulkVerb.DELETE:
            return delete_run(session, team_id, run_id, dry_run=False)
        case BulkVerb.TAG:
            tag_run(session, team_id, run_id, action.tags)
        case BulkVerb.UNTAG:
            untag_run(session, team_id, run_id, action.tags)
        case _:
            assert_never(action.verb)
    return None
