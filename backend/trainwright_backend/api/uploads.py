"""Uploads of a team: tus 1.0.0, a list of those that no dataset uses yet, and previews of their documents."""

from uuid import UUID

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool

from trainwright.contracts.api.envelopes import Page
from trainwright.contracts.api.uploads import Preview, PreviewRequest, Upload
from trainwright_backend.api.body_limits import UNLIMITED
from trainwright_backend.api.dependencies import (
    CurrentDatabase,
    CurrentSettings,
    IdempotencyKey,
    ReadSession,
    Store,
    Uploads,
)
from trainwright_backend.api.paging import MAX_ITEMS, Paged, first_page
from trainwright_backend.auth.policies import Access, Editor, Viewer
from trainwright_backend.checkpoints.total_storage import check_upload
from trainwright_backend.core.db import Database
from trainwright_backend.core.ids import parse_id, public_id
from trainwright_backend.core.object_store import ObjectStore
from trainwright_backend.core.policy import GuardedRoute, public
from trainwright_backend.core.resource_router import ResourceRouter
from trainwright_backend.core.settings import Settings
from trainwright_backend.datasets import previews
from trainwright_backend.teams.team_locks import hold_team
from trainwright_backend.uploads import service, tus
from trainwright_backend.uploads.receiver import UploadProgress
from trainwright_backend.uploads.request_body import UploadRequest
from trainwright_backend.uploads.tus import TusRoute, TusVersion, bad_header, http_date

PREFIX = "/teams/{team}/uploads"
preview_router = ResourceRouter(prefix=PREFIX, tags=["datasets"], route_class=GuardedRoute)
tus_router = ResourceRouter(prefix=PREFIX, tags=["uploads"], route_class=TusRoute)


@preview_router.post("/preview")
def preview_uploads(
    asked: PreviewRequest, access: Editor, database: CurrentDatabase, store: Store
) -> Preview:
    """Preview complete uploads: format, columns, and the first documents as a curation would read them."""
    return previews.preview(database, store, access.team_id, asked)


@tus_router.get("", response_model=Page[Upload])
def list_uploads(access: Viewer, session: ReadSession, asked: Paged) -> Page[Upload] | Response:
    """Unfinished uploads, and complete ones that no dataset uses yet, newest first."""
    limit = None if asked.is_legacy else (asked.limit or MAX_ITEMS) + 1
    found = service.list_uploads(session, access.team_id, access.user_id, limit, asked.cursor)
    return first_page(found, asked, lambda upload: upload.id)


@tus_router.options(
    "", status_code=204, dependencies=[public("it says which protocol is spoken, the same to everybody")]
)
def describe_uploads(team: str, settings: CurrentSettings) -> Response:
    """The version, extensions and limits of tus that this server supports."""
    return Response(status_code=204, headers=tus.capabilities(_largest_bytes(settings)))


@tus_router.post("", status_code=201, response_class=Response, max_body_size=UNLIMITED)
async def create_upload(
    access: Editor,
    version: TusVersion,
    request: Request,
    database: CurrentDatabase,
    settings: CurrentSettings,
    receiver: Uploads,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Announce a file by `Upload-Length` and `Upload-Metadata`; the body may have its first bytes.

    A repetition with the same `Idempotency-Key` returns the upload of the first request, and its body is not read. `Upload-Offset`
    says how many bytes are stored.
    """
    announced = tus.upload_length(request, _largest_bytes(settings))
    name = tus.upload_file_name(request)
    upload_id, position, is_new = await run_in_threadpool(
        _find_or_create, database, access, name, announced, idempotency_key
    )
    upload = public_id("up", upload_id)
    if is_new and tus.sends_bytes(request):
        sent = UploadRequest(0, request.stream(), tus.content_length(request), tus.checksum(request))
        position = await receiver.receive(access.team_id, upload, upload_id, sent)
    return Response(
        status_code=201, headers={"Location": f"{request.url.path}/{upload}", **_headers(position)}
    )


@tus_router.head("/{upload}", response_class=Response)
def show_upload(upload: str, access: Editor, version: TusVersion, session: ReadSession) -> Response:
    """How many bytes of an upload are stored durably."""
    row = service.find_upload(session, access.team_id, upload)
    headers = {
        "Upload-Length": str(row.bytes),
        "Upload-Metadata": tus.metadata_header(row.file_name),
        "Cache-Control": "no-store",
        **_headers(UploadProgress(row.offset, row.expires)),
    }
    return Response(headers=headers)


@tus_router.patch("/{upload}", status_code=204, response_class=Response, max_body_size=UNLIMITED)
async def add_bytes(
    upload: str, access: Editor, version: TusVersion, request: Request, receiver: Uploads
) -> Response:
    """Add bytes to an upload, from `Upload-Offset` on."""
    tus.require_bytes_type(request)
    sent = UploadRequest(
        tus.offset(request),
        request.stream(),
        tus.content_length(request),
        tus.checksum(request),
    )
    position = await receiver.receive(access.team_id, upload, parse_id("up", upload), sent)
    return Response(status_code=204, headers=_headers(position))


@tus_router.delete("/{upload}", status_code=204, response_class=Response)
async def delete_upload(
    upload: str,
    access: Editor,
    version: TusVersion,
    database: CurrentDatabase,
    store: Store,
    receiver: Uploads,
) -> Response:
    """Delete an upload; its bytes no longer count towards the quota."""
    upload_id = parse_id("up", upload)
    await run_in_threadpool(receiver.position, access.team_id, upload)
    await receiver.stop(upload_id)
    await run_in_threadpool(_drop, database, store, access.team_id, upload_id)
    return Response(status_code=204)


@tus_router.post("/{upload}", status_code=204, response_class=Response, max_body_size=UNLIMITED)
async def override_method(
    upload: str,
    access: Editor,
    version: TusVersion,
    request: Request,
    database: CurrentDatabase,
    store: Store,
    receiver: Uploads,
) -> Response:
    """Apply the method in `X-HTTP-Method-Override`, for clients that cannot send other methods."""
    method = (tus.one_header(request, "X-HTTP-Method-Override") or "").upper()
    if method == "PATCH":
        return await add_bytes(upload, access, version, request, receiver)
    if method == "DELETE":
        return await delete_upload(upload, access, version, database, store, receiver)
    if method == "HEAD":
        return await run_in_threadpool(_head, database, upload, access, version)
    raise bad_header("X-HTTP-Method-Override", "POST needs it here: PATCH, DELETE or HEAD.")


router = ResourceRouter()
# The address of a preview has the form of an upload's, and the first match wins.
router.include_router(preview_router)
router.include_router(tus_router)


def _find_or_create(
    database: Database, access: Access, name: str, announced: int, key: str | None
) -> tuple[UUID, UploadProgress, bool]:
    """The upload, its position, and whether it is new."""
    with database.write() as session:
        hold_team(session, access.team_id)
        row = service.earlier_upload(session, access.team_id, key, name, announced)
        if is_new := row is None:
            check_upload(session, access.team_id, access.user_id, announced)
            row = service.create_upload(session, access.team_id, access.user_id, name, announced, key)
        return row.id, UploadProgress(row.offset, row.expires), is_new


def _drop(database: Database, store: ObjectStore, team_id: UUID, upload_id: UUID) -> None:
    with database.write() as session:
        hold_team(session, team_id)
        service.delete_upload(session, team_id, upload_id)
    store.drop_partial(upload_id)


def _head(database: Database, upload: str, access: Access, version: None) -> Response:
    with database.read() as session:
        return show_upload(upload, access, version, session)


def _headers(position: UploadProgress) -> dict[str, str]:
    return {"Upload-Offset": str(position.offset), "Upload-Expires": http_date(position.expires)}


def _largest_bytes(settings: Settings) -> int:
    return settings.largest_upload_gib * 2**30
