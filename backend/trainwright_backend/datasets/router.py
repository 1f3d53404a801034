"""Datasets of a team."""

from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool

from trainwright.contracts.api import Dataset, Page, RejectedDocument
from trainwright_backend.auth.policies import Access, Editor, Viewer
from trainwright_backend.core.db import Database, ReadSession, Write, WriteSession
from trainwright_backend.core.doomed import doom_unless_spared, is_doomed, spare
from trainwright_backend.core.errors import AppError, Conflict
from trainwright_backend.core.ids import new_id, parse_id
from trainwright_backend.core.storage import STREAMED, LocalStore, Store
from trainwright_backend.datasets import service, uploads
from trainwright_backend.datasets.service import Uploader

router = APIRouter(prefix="/teams/{team}/datasets", tags=["datasets"])


def _form(fields: dict[str, dict[str, str]]) -> dict[str, Any]:
    """What the OpenAPI document says of a form that the route reads as a stream."""
    files = {"type": "array", "items": {"type": "string", "format": "binary"}}
    schema = {"type": "object", "properties": {**fields, "files": files}, "required": [*fields, "files"]}
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}}


@router.get("")
def list_datasets(
    access: Viewer,
    session: ReadSession,
    limit: Annotated[int, Query(ge=1, le=100)] = 50,
    cursor: str | None = None,
) -> Page[Dataset]:
    """The team's datasets, newest first, each with its newest version."""
    return service.list_datasets(session, access.team_id, limit, cursor)


@router.post(
    "",
    status_code=201,
    max_body_size=STREAMED,
    openapi_extra=_form({"name": {"type": "string", "description": "What people call the dataset."}}),
)
async def create_dataset(access: Editor, request: Request, store: Store) -> Dataset:
    """Upload `.jsonl` or `.txt` files as a new dataset. Its tokens are prepared at once, in the background."""
    dataset_id = new_id()
    database: Database = request.app.state.database
    folder = await run_in_threadpool(_upload_folder, database, access, dataset_id)
    upload = await uploads.receive(request, store, folder, frozenset({"name"}))

    def create(session: Write) -> Dataset:
        name = uploads.check_dataset_name(upload.fields)
        by = Uploader(access.user_id, access.user_name)
        return service.create_dataset(session, access.team_id, dataset_id, name, by, upload.files)

    return await run_in_threadpool(_keep, database, store, folder, create)


@router.get("/{dataset}")
def get_dataset(dataset: str, access: Viewer, session: ReadSession) -> Dataset:
    """A dataset with its versions and their preparations."""
    return service.show_dataset(session, access.team_id, dataset)


@router.delete("/{dataset}", status_code=204)
def delete_dataset(dataset: str, access: Editor, session: WriteSession) -> None:
    """Delete a dataset with everything made of it; refused while runs use it."""
    service.delete_dataset(session, access.team_id, dataset)


@router.post("/{dataset}/versions", status_code=201, max_body_size=STREAMED, openapi_extra=_form({}))
async def create_dataset_version(dataset: str, access: Editor, request: Request, store: Store) -> Dataset:
    """Upload files as the dataset's next version. Versions never change."""
    dataset_id = parse_id("ds", dataset)
    database: Database = request.app.state.database
    await run_in_threadpool(_require_dataset, database, access.team_id, dataset)
    folder = await run_in_threadpool(_upload_folder, database, access, dataset_id)
    upload = await uploads.receive(request, store, folder, frozenset())

    def create(session: Write) -> Dataset:
        return service.add_version(session, access.team_id, dataset_id, upload.files)

    return await run_in_threadpool(_keep, database, store, folder, create)


@router.get("/{dataset}/versions/{number}/rejected")
def list_rejected(dataset: str, number: int, access: Viewer, session: ReadSession) -> list[RejectedDocument]:
    """Lines of a version that gave no document, with the reason; up to 1,000 of them."""
    return service.list_rejected(session, access.team_id, dataset, number)


def _upload_folder(database: Database, access: Access, dataset_id: UUID) -> str:
    """A folder for an upload's bytes, which go again, even after a crash, when no rows ever name them."""
    folder = f"{service.object_folder_of_dataset(access.team_id, dataset_id)}/{new_id()}"
    with database.write() as session:
        doom_unless_spared(session, folder)
    return folder


def _require_dataset(database: Database, team_id: UUID, dataset: str) -> None:
    with database.read() as session:
        service.get_dataset(session, team_id, dataset)


def _keep(database: Database, store: LocalStore, folder: str, create: Callable[[Write], Dataset]) -> Dataset:
    """Write the rows of an upload whose bytes lie in ``folder``; without rows the bytes go again."""
    try:
        with database.write() as session:
            if not spare(session, folder):
                raise Conflict("upload_too_slow", "This upload took longer than a day. Send the files again.")
            return create(session)
    except BaseException:
        # When the connection was lost in the commit, the rows may be there: then the bytes must stay.
        with suppress(AppError), database.read() as session:
            if is_doomed(session, folder):
                store.delete_prefix(folder)
        raise
