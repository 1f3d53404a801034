"""Checkpoints and exports: those of one run, and those of all the team's runs."""

from typing import Annotated

from fastapi import Query, Request, Response
from fastapi.responses import StreamingResponse

from trainwright.contracts.api.actions import CheckpointEdit, FreedSpace, Retention, RetentionResult
from trainwright.contracts.api.checkpoints import Checkpoint, CheckpointFile, CheckpointOrder
from trainwright.contracts.api.envelopes import Page
from trainwright.contracts.checkpoint import CheckpointKind
from trainwright_backend.api.dependencies import (
    CurrentDatabase,
    DeletedNames,
    DryRun,
    Flag,
    ReadSession,
    Store,
    WriteSession,
)
from trainwright_backend.api.paging import Paged, page_of
from trainwright_backend.auth import audit
from trainwright_backend.auth.policies import Editor, Viewer
from trainwright_backend.checkpoints import deletion, downloads, service
from trainwright_backend.core.policy import GuardedRoute
from trainwright_backend.core.resource_router import ResourceRouter
from trainwright_backend.metrics.checkpoint_validation_loss import retained_with_validation, with_validation
from trainwright_backend.runs.service import get_run

router = ResourceRouter(prefix="/teams/{team}", tags=["checkpoints"], route_class=GuardedRoute)


@router.get("/runs/{run}/checkpoints", response_model=Page[Checkpoint])
def list_checkpoints(
    access: Viewer, session: ReadSession, run: str, asked: Paged
) -> Page[Checkpoint] | Response:
    """The run's checkpoints and exports, newest first."""
    found = service.list_checkpoints(session, get_run(session, access.team_id, run))
    return page_of(with_validation(session, found), asked, lambda checkpoint: checkpoint.id)


@router.patch("/runs/{run}/checkpoints/{checkpoint}")
def edit_checkpoint(
    access: Editor, session: WriteSession, run: str, checkpoint: str, body: CheckpointEdit
) -> Checkpoint:
    """Pin a checkpoint, so that nothing deletes it, or unpin it."""
    pinned = service.pin(session, access.team_id, run, checkpoint, pinned=body.pinned)
    return with_validation(session, [pinned])[0]


@router.delete("/runs/{run}/checkpoints/{checkpoint}")
def delete_checkpoint(
    access: Editor, session: WriteSession, run: str, checkpoint: str, dry_run: DryRun
) -> FreedSpace:
    """Delete one checkpoint or export, or only report what that would free."""
    return deletion.delete_checkpoint(session, access.team_id, run, checkpoint, dry_run=dry_run)


@router.get("/runs/{run}/checkpoints/{checkpoint}/files")
def list_checkpoint_files(
    access: Viewer, database: CurrentDatabase, store: Store, run: str, checkpoint: str
) -> list[CheckpointFile]:
    """The files of a checkpoint, with download links."""
    _, found = downloads.open_download(database, access.team_id, run, checkpoint)
    return downloads.list_files(store, found)


@router.get("/runs/{run}/checkpoints/{checkpoint}/archive", response_class=StreamingResponse)
def download_checkpoint(
    access: Viewer, database: CurrentDatabase, store: Store, run: str, checkpoint: str
) -> StreamingResponse:
    """Download a checkpoint as one tar."""
    tar = downloads.open_archive(database, store, access.team_id, run, checkpoint)
    return StreamingResponse(
        tar.content,
        media_type="application/x-tar",
        headers={
            "Content-Length": str(tar.size_bytes),
            "Content-Disposition": f'attachment; filename="{tar.folder}.tar"',
        },
    )


@router.get("/checkpoints")
def list_team_checkpoints(
    access: Viewer,
    session: ReadSession,
    kind: CheckpointKind | None = None,
    pinned: Flag | None = None,
    order: CheckpointOrder = CheckpointOrder.NEWEST,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    cursor: Annotated[str | None, Query(max_length=200)] = None,
) -> Page[Checkpoint]:
    """The checkpoints and exports of all the team's runs, newest first or run by run."""
    asked = service.CheckpointQuery(kind, pinned, order)
    page = service.list_all(session, access.team_id, asked, limit, cursor)
    return page.model_copy(update={"items": with_validation(session, page.items)})


@router.post("/checkpoints/retention")
def retain_checkpoints(
    access: Editor, request: Request, database: CurrentDatabase, body: Retention, deleted: DeletedNames
) -> RetentionResult:
    """Delete the checkpoints that no rule keeps. By default it only lists them."""
    if body.dry_run:
        audit.mark_as_unchanged(request)
    result = deletion.retain(database, access.team_id, body)
    gone = (entry.checkpoint for entry in result.checkpoints if entry.kept is None)
    deleted.extend(f"checkpoints of {checkpoint.run_name}" for checkpoint in gone)
    with database.read() as session:
        return retained_with_validation(session, result)
