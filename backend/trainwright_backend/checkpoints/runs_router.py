"""HTTP of those verbs of runs that look at checkpoints: fork, delete, and verbs for many runs."""

from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response

from trainwright.contracts.api.runs import Run as ShownRun
from trainwright.contracts.api.verbs import BulkAction, BulkResult, Freed, NewFork
from trainwright_backend.auth.policies import Editor
from trainwright_backend.checkpoints import bulk, forks, removal
from trainwright_backend.core.db import WriteSession
from trainwright_backend.core.policy import GuardedRoute
from trainwright_backend.runs import service
from trainwright_backend.runs.submission import Submitter

router = APIRouter(prefix="/teams/{team}/runs", tags=["runs"], route_class=GuardedRoute)

DryRun = Annotated[bool, Query(description="Only say what would be freed.")]


@router.post("/bulk")
def act_on_runs(access: Editor, request: Request, body: BulkAction) -> list[BulkResult]:
    """One verb for many runs. Each succeeds or is refused by itself."""
    return bulk.act(request.app.state.database, access.team_id, body, access.user_name)


@router.post("/{run}/fork", status_code=201)
def fork_run(
    access: Editor,
    session: WriteSession,
    request: Request,
    response: Response,
    run: str,
    body: NewFork,
    idempotency_key: Annotated[str | None, Header()] = None,
) -> ShownRun:
    """Start a run that goes on from a checkpoint of another, with the fields of `changes` changed."""
    submitter = Submitter(access.user_id, access.user_name)
    made = forks.fork_run(session, access.team_id, submitter, run, body, idempotency_key)
    response.status_code = 200 if made.replayed else 201
    return service.show_run(session, made.run, request.app.state.settings.timers.scale)


@router.delete("/{run}")
def delete_run(access: Editor, session: WriteSession, run: str, dry_run: DryRun = False) -> Freed:
    """Delete an ended run with everything it made, or only say what that would free."""
    return removal.delete_run(session, access.team_id, run, dry_run=dry_run)
