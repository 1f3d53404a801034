"""One action on many runs. Each succeeds or is refused independently, in its own transaction.

This module is in `checkpoints` because deleting a run checks its checkpoints.
"""

from dataclasses import dataclass, field
from typing import assert_never
from uuid import UUID

from trainwright.contracts.api.actions import BulkAction, BulkResult, FreedSpace, RunAction
from trainwright_backend.checkpoints.deletion import delete_run
from trainwright_backend.checkpoints.resume import resume_run_if_space
from trainwright_backend.core.db import Database, Write
from trainwright_backend.core.errors import AppError
from trainwright_backend.runs.edits import tag_run, untag_run
from trainwright_backend.runs.pause import pause_run
from trainwright_backend.runs.service import cancel_run


@dataclass(frozen=True)
class BulkOutcome:
    """The result of the action on each run, in the requested order, and the names of deleted runs."""

    results: list[BulkResult] = field(default_factory=list)
    deleted_names: list[str] = field(default_factory=list)


def act(database: Database, team_id: UUID, action: BulkAction, by: str) -> BulkOutcome:
    """Do the action for each run."""
    outcome = BulkOutcome()
    for run_id in action.runs:
        try:
            with database.write() as session:
                freed = _do(session, team_id, run_id, action, by)
        except AppError as error:
            refused = BulkResult(run=run_id, done=False, code=error.code, detail=error.detail)
            outcome.results.append(refused)
        else:
            outcome.results.append(BulkResult(run=run_id, done=True, freed=freed))
            outcome.deleted_names.extend(session.deleted_names)
    return outcome


def _do(session: Write, team_id: UUID, run_id: str, action: BulkAction, by: str) -> FreedSpace | None:
    """Returns the space that a deletion freed."""
    match action.action:
        case RunAction.CANCEL:
            cancel_run(session, team_id, run_id, by)
        case RunAction.PAUSE:
            pause_run(session, team_id, run_id, by)
        case RunAction.RESUME:
            resume_run_if_space(session, team_id, run_id, by)
        case RunAction.DELETE:
            return delete_run(session, team_id, run_id, dry_run=False)
        case RunAction.TAG:
            tag_run(session, team_id, run_id, action.tags)
        case RunAction.UNTAG:
            untag_run(session, team_id, run_id, action.tags)
        case _:
            assert_never(action.action)
    return None
