"""Objects of the store, by signed links."""

from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse

from trainwright_backend.api.body_limits import UNLIMITED
from trainwright_backend.api.dependencies import Store
from trainwright_backend.core.errors import NotFound
from trainwright_backend.core.object_store import BUFFER_BYTES
from trainwright_backend.core.object_upload import receive_object
from trainwright_backend.core.policy import public

router = APIRouter(
    prefix="/blobs", tags=["blobs"], dependencies=[public("the signature in the link is the right")]
)


class BlobResponse(FileResponse):
    """A file in large blocks, with range requests."""

    chunk_size = BUFFER_BYTES


@router.get("/{signed}", response_class=BlobResponse)
def get_blob(signed: str, store: Store) -> BlobResponse:
    """Download an object by a signed link. Range requests are supported."""
    right = store.verify(signed, "GET")
    if store.stat(right.k) is None:
        raise NotFound("The object of this link does not exist any more.")
    name = right.k.rpartition("/")[2]
    return BlobResponse(store.path_of(right.k), media_type="application/octet-stream", filename=name)


@router.put("/{signed}", status_code=204, max_body_size=UNLIMITED)
async def put_blob(signed: str, request: Request, store: Store) -> Response:
    """Upload an object by a signed link. It is refused and discarded unless size and digest are as announced."""
    await receive_object(store, signed, request.stream())
    return Response(status_code=204)
