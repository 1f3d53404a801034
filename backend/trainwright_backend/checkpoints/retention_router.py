"""HTTP of keeping and deleting checkpoints: pins, single ones, all of a team's, retention."""

from typing import Annotated

from fastapi import APIRouter, Query, Request

from trainwright.contracts.api.checkpoints import Checkpoint
from trainwright.contracts.api.envelopes import Page
from trainwright.contracts.api.verbs import CheckpointEdit, Freed, Retention, RetentionResult
from trainwright.contracts.checkpoint import CheckpointKind
from trainwright_backend.auth.policies import Editor, Viewer
from trainwright_backend.checkpoints import removal, service
from trainwright_backend.checkpoints.runs_router import DryRun
from trainwright_backend.core.db import ReadSession, WriteSession
from trainwright_backend.core.policy import GuardedRoute

router = APIRouter(prefix="/teams/{team}", tags=["checkpoints"], route_class=GuardedRoute)


@router.patch("/runs/{run}/checkpoints/{checkpoint}")
def edit_checkpoint(
    access: Editor, session: WriteSession, run: str, checkpoint: str, body: CheckpointEdit
) -> Checkpoint:
    """Pin a checkpoint, so that nothing deletes it, or unpin it."""
    return service.pin(session, access.team_id, run, checkpoint, pinned=body.pinned)


@router.delete("/runs/{run}/checkpoints/{checkpoint}")
def delete_checkpoint(
    access: Editor, session: WriteSession, run: str, checkpoint: str, dry_run: DryRun = False
) -> Freed:
    """Delete one checkpoint or export, or only say what that would free."""
    return removal.delete_checkpoint(session, access.team_id, run, checkpoint, dry_run=dry_run)


@router.get("/checkpoints")
def list_team_checkpoints(
    access: Viewer,
    session: ReadSession,
    kind: CheckpointKind | None = None,
    pinned: bool | None = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    cursor: Annotated[str | None, Query(max_length=200)] = None,
) -> Page[Checkpoint]:
    """The checkpoints and exports of all the team's runs, newest first."""
    return service.list_all(session, access.team_id, kind, pinned, limit, cursor)


@router.post("/checkpoints/retention")
def retain_checkpoints(access: Editor, request: Request, body: Retention) -> RetentionResult:
    """Delete the checkpoints that nothing keeps, or, as it does by itself, only say which."""
    return removal.retain(request.app.state.database, access.team_id, body)
