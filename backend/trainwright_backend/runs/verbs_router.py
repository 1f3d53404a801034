"""HTTP of editing and copying runs; the addresses begin as those of `runs.router`, which includes this.

Forks, deletions and verbs for many runs look at checkpoints: they stand in `checkpoints.runs_router`.
"""

from typing import Annotated

from fastapi import APIRouter, Header, Request, Response

from trainwright.contracts.api.runs import Run as ShownRun
from trainwright.contracts.api.verbs import NewClone, RunEdit
from trainwright_backend.auth.policies import Editor
from trainwright_backend.core.db import WriteSession
from trainwright_backend.core.policy import GuardedRoute
from trainwright_backend.runs import copies, edits, service
from trainwright_backend.runs.submission import Submitter

router = APIRouter(route_class=GuardedRoute)


@router.patch("/{run}")
def edit_run(access: Editor, session: WriteSession, request: Request, run: str, body: RunEdit) -> ShownRun:
    """Change a run's name, tags or notes; what is left out stays."""
    edited = edits.edit_run(session, access.team_id, run, body, access.user_name)
    return service.show_run(session, edited, request.app.state.settings.timers.scale)


@router.post("/{run}/clone", status_code=201)
def clone_run(
    access: Editor,
    session: WriteSession,
    request: Request,
    response: Response,
    run: str,
    body: NewClone,
    idempotency_key: Annotated[str | None, Header()] = None,
) -> ShownRun:
    """Start a run with the configuration of another, with the fields of `changes` changed."""
    submitter = Submitter(access.user_id, access.user_name)
    made = copies.clone_run(session, access.team_id, submitter, run, body, idempotency_key)
    response.status_code = 200 if made.replayed else 201
    return service.show_run(session, made.run, request.app.state.settings.timers.scale)
