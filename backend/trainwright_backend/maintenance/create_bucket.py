"""Creating the bucket of `TRAINWRIGHT_OBJECT_STORE_URL` in a new store.

The store's client has no such request, but it signs any: creating a bucket is a PUT of the bucket's address.
"""

from datetime import timedelta
from urllib.parse import urlsplit
from xml.sax.saxutils import escape

import httpx

from trainwright_backend.core.settings import Settings
from trainwright_backend.maintenance.move_objects import NoBucketError

AMAZONS_FIRST_REGION = "us-east-1"
"""The only region that a request must not name."""


class BucketRefusedError(Exception):
    """The store did not create the bucket; the message says why."""


def create_bucket(settings: Settings) -> bool:
    """Create the bucket unless it exists. Whether it was created now.

    Raises:
        NoBucketError: ``TRAINWRIGHT_OBJECT_STORE_URL`` is not set.
        BucketRefusedError: the store does not respond, or refuses.
    """
    if settings.object_store_url is None:
        raise NoBucketError("TRAINWRIGHT_OBJECT_STORE_URL is not set: name the bucket, as in s3://bucket")
    import obstore  # it takes a while to import

    from trainwright_backend.core.s3_store import open_bucket

    name = urlsplit(settings.object_store_url).netloc
    address = obstore.sign(
        open_bucket(settings, settings.s3_endpoint, name, ""), "PUT", "", timedelta(minutes=1)
    )
    try:
        response = httpx.put(address, content=_location(settings.s3_region), timeout=30)
    except httpx.HTTPError as error:
        raise BucketRefusedError(f"The store does not respond: {error}") from error
    if response.status_code == httpx.codes.CONFLICT and "BucketAlreadyOwnedByYou" in response.text:
        return False
    if not response.is_success:
        raise BucketRefusedError(
            f"The store did not create the bucket {name}: {response.status_code} {response.text}"
        )
    return True


def _location(region: str) -> str:
    if region == AMAZONS_FIRST_REGION:
        return ""
    return f"<CreateBucketConfiguration><LocationConstraint>{escape(region)}</LocationConstraint></CreateBucketConfiguration>"
