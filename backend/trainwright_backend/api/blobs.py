"""Objects of the store, by signed links."""

import time

from fastapi import Request, Response
from fastapi.responses import FileResponse, RedirectResponse

from trainwright_backend.api.body_limits import UNLIMITED
from trainwright_backend.api.dependencies import Store
from trainwright_backend.core.errors import NotFound
from trainwright_backend.core.object_store import BUFFER_BYTES
from trainwright_backend.core.object_upload import receive_object
from trainwright_backend.core.policy import public
from trainwright_backend.core.resource_router import ResourceRouter

router = ResourceRouter(
    prefix="/blobs", tags=["blobs"], dependencies=[public("the signature in the link is the grant")]
)


MIN_DIRECT_SECONDS = 60.0
"""Minimum lifetime of a link to the bucket, because the clocks of the two servers may differ."""


class BlobResponse(FileResponse):
    """A file in large blocks, with range requests."""

    chunk_size = BUFFER_BYTES


@router.get("/{signed}", response_class=BlobResponse)
def get_blob(signed: str, store: Store) -> Response:
    """Download an object by a signed link, with range requests. If the objects are in a bucket, the response is a redirect to it."""
    grant = store.verify(signed, "GET")
    if store.stat(grant.key) is None:
        raise NotFound("The object of this link no longer exists.")
    if (
        address := store.direct_link(grant.key, max(grant.expires_at - time.time(), MIN_DIRECT_SECONDS))
    ) is not None:
        return RedirectResponse(address)
    name = grant.key.rpartition("/")[2]
    return BlobResponse(store.local_file(grant.key), media_type="application/octet-stream", filename=name)


@router.put("/{signed}", status_code=204, max_body_size=UNLIMITED)
async def put_blob(signed: str, request: Request, store: Store) -> Response:
    """Upload an object by a signed link. It is refused and discarded unless size and digest are as announced."""
    await receive_object(store, signed, request.stream())
    return Response(status_code=204)
