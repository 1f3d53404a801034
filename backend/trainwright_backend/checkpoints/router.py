"""HTTP of checkpoints for people: list, download file by file or as one archive."""

import re

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from trainwright.contracts.api.checkpoints import Checkpoint, CheckpointFile
from trainwright_backend.auth.policies import Viewer
from trainwright_backend.checkpoints import links, service
from trainwright_backend.checkpoints.archive import Member, archive, archive_bytes
from trainwright_backend.core.db import ReadSession
from trainwright_backend.core.policy import GuardedRoute
from trainwright_backend.core.storage import Store
from trainwright_backend.runs.service import get_run

router = APIRouter(
    prefix="/teams/{team}/runs/{run}/checkpoints", tags=["checkpoints"], route_class=GuardedRoute
)


@router.get("")
def list_checkpoints(access: Viewer, session: ReadSession, run: str) -> list[Checkpoint]:
    """The run's checkpoints and exports, newest first."""
    return service.list_checkpoints(session, get_run(session, access.team_id, run))


@router.get("/{checkpoint}/files")
def list_checkpoint_files(
    access: Viewer, request: Request, store: Store, run: str, checkpoint: str
) -> list[CheckpointFile]:
    """The files of a checkpoint, with links."""
    _, found = links.hand_out(request.app.state.database, access.team_id, run, checkpoint)
    return links.list_files(store, found)


@router.get("/{checkpoint}/archive", response_class=StreamingResponse)
def download_checkpoint(
    access: Viewer, request: Request, store: Store, run: str, checkpoint: str
) -> StreamingResponse:
    """A checkpoint as one tar."""
    database = request.app.state.database
    found_run, found = links.hand_out(database, access.team_id, run, checkpoint)
    members = [Member(file["name"], file["bytes"], f"{found.prefix}/{file['name']}") for file in found.files]
    folder = f"{re.sub(r'[^A-Za-z0-9._-]+', '-', found_run.name)}-step-{found.step}"
    return StreamingResponse(
        links.marked_while_sent(archive(store, folder, members, found.created), database, found.id),
        media_type="application/x-tar",
        headers={
            "Content-Length": str(archive_bytes(folder, members, found.created)),
            "Content-Disposition": f'attachment; filename="{folder}.tar"',
        },
    )
