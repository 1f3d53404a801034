"""Uploads of a team: tus 1.0.0, which stock clients speak, and a list of those that nothing uses yet."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Request, Response
from fastapi.concurrency import run_in_threadpool

from trainwright.contracts.api.uploads import Upload
from trainwright_backend.auth.policies import Access, Editor, Viewer
from trainwright_backend.core.db import Database, ReadSession
from trainwright_backend.core.ids import parse_id, public_id
from trainwright_backend.core.policy import public
from trainwright_backend.core.storage import STREAMED, LocalStore, Store
from trainwright_backend.uploads import protocol, service
from trainwright_backend.uploads.protocol import SpeaksTus, TusRoute, bad_header, http_date
from trainwright_backend.uploads.receiving import Position, Receiver
from trainwright_backend.uploads.transfer import Sent

router = APIRouter(prefix="/teams/{team}/uploads", tags=["uploads"], route_class=TusRoute)


def get_receiver(request: Request) -> Receiver:
    receiver = request.app.state.receiver
    assert isinstance(receiver, Receiver)
    return receiver


Receiving = Annotated[Receiver, Depends(get_receiver)]


@router.get("")
def list_uploads(access: Viewer, session: ReadSession) -> list[Upload]:
    """Uploads under way, and complete ones that no dataset has taken, newest first."""
    return service.list_uploads(session, access.team_id, access.user_id)


@router.options(
    "", status_code=204, dependencies=[public("it says which protocol is spoken, the same to everybody")]
)
def describe_uploads(team: str, request: Request) -> Response:
    """What this server can do of tus."""
    return Response(status_code=204, headers=protocol.abilities(_largest(request)))


@router.post("", status_code=201, response_class=Response, max_body_size=STREAMED)
async def create_upload(access: Editor, tus: SpeaksTus, request: Request, receiver: Receiving) -> Response:
    """Announce a file by `Upload-Length` and `Upload-Metadata`; its first bytes may come along."""
    announced = protocol.announced_bytes(request, _largest(request))
    name = protocol.announced_name(request)
    upload_id, position = await run_in_threadpool(
        _create, request.app.state.database, access, name, announced
    )
    upload = public_id("up", upload_id)
    if protocol.sends_bytes(request):
        sent = Sent(0, request.stream(), protocol.content_length(request), protocol.checksum(request))
        position = await receiver.receive(access.team_id, upload, upload_id, sent)
    return Response(
        status_code=201, headers={"Location": f"{request.url.path}/{upload}", **_headers(position)}
    )


@router.head("/{upload}", response_class=Response)
def show_upload(upload: str, access: Editor, tus: SpeaksTus, session: ReadSession) -> Response:
    """How many bytes of an upload are safely here."""
    row = service.find_upload(session, access.team_id, upload)
    headers = {
        "Upload-Length": str(row.bytes),
        "Upload-Metadata": protocol.metadata_header(row.file_name),
        "Cache-Control": "no-store",
        **_headers(Position(row.offset, row.expires)),
    }
    return Response(headers=headers)


@router.patch("/{upload}", status_code=204, response_class=Response, max_body_size=STREAMED)
async def add_bytes(
    upload: str, access: Editor, tus: SpeaksTus, request: Request, receiver: Receiving
) -> Response:
    """More bytes of an upload, from `Upload-Offset` on."""
    protocol.require_bytes_type(request)
    sent = Sent(
        protocol.offset(request),
        request.stream(),
        protocol.content_length(request),
        protocol.checksum(request),
    )
    position = await receiver.receive(access.team_id, upload, parse_id("up", upload), sent)
    return Response(status_code=204, headers=_headers(position))


@router.delete("/{upload}", status_code=204, response_class=Response)
async def delete_upload(
    upload: str, access: Editor, tus: SpeaksTus, request: Request, store: Store, receiver: Receiving
) -> Response:
    """End an upload; its bytes no longer count."""
    upload_id = parse_id("up", upload)
    database = request.app.state.database
    await run_in_threadpool(receiver.position, access.team_id, upload)
    await receiver.stop(upload_id)
    await run_in_threadpool(_drop, database, store, access.team_id, upload_id)
    return Response(status_code=204)


@router.post("/{upload}", status_code=204, response_class=Response, max_body_size=STREAMED)
async def override_method(
    upload: str, access: Editor, tus: SpeaksTus, request: Request, store: Store, receiver: Receiving
) -> Response:
    """For clients that can send no other method: the one that `X-HTTP-Method-Override` names."""
    method = (protocol.one_header(request, "X-HTTP-Method-Override") or "").upper()
    if method == "PATCH":
        return await add_bytes(upload, access, tus, request, receiver)
    if method == "DELETE":
        return await delete_upload(upload, access, tus, request, store, receiver)
    if method == "HEAD":
        return await run_in_threadpool(_head, request.app.state.database, upload, access, tus)
    raise bad_header("X-HTTP-Method-Override", "POST needs it here: PATCH, DELETE or HEAD.")


def _create(database: Database, access: Access, name: str, announced: int) -> tuple[UUID, Position]:
    with database.write() as session:
        row = service.create_upload(session, access.team_id, access.user_id, name, announced)
        return row.id, Position(row.offset, row.expires)


def _drop(database: Database, store: LocalStore, team_id: UUID, upload_id: UUID) -> None:
    with database.write() as session:
        service.drop_upload(session, team_id, upload_id)
    store.drop_partial(upload_id)


def _head(database: Database, upload: str, access: Access, tus: None) -> Response:
    with database.read() as session:
        return show_upload(upload, access, tus, session)


def _headers(position: Position) -> dict[str, str]:
    return {"Upload-Offset": str(position.offset), "Upload-Expires": http_date(position.expires)}


def _largest(request: Request) -> int:
    gib: int = request.app.state.settings.largest_upload_gib
    return gib * 2**30
