"""Signed links: the right to read or write one object, for a while.

The signature is the permission: a link names one method and one key, and expires. An upload link also names the size and
digest that the object must have.
"""

import time
from typing import Literal

from itsdangerous import BadSignature, URLSafeSerializer
from pydantic import BaseModel, SecretStr, ValidationError

from trainwright_backend.core.errors import Forbidden


class LinkGrant(BaseModel):
    """What a signed link permits. Its fields are sent under short names, which keep links short."""

    m: str
    """Method."""

    k: str
    """Key of the object."""

    e: float
    """Expiry, in seconds since the epoch."""

    d: str | None = None
    """Digest of an upload."""

    b: int | None = None
    """Bytes of an upload."""


class LinkSigner:
    """Makes signed links and verifies them."""

    def __init__(self, secret_key: SecretStr) -> None:
        self._serializer = URLSafeSerializer(secret_key.get_secret_value(), salt="trainwright.blobs")

    def sign(
        self,
        method: Literal["GET", "PUT"],
        key: str,
        expires_seconds: float,
        *,
        digest: str | None,
        size: int | None,
    ) -> str:
        """A link relative to the API's address. ``digest`` and ``size`` are required for PUT."""
        assert method == "GET" or (digest is not None and size is not None), "an upload names size and digest"
        grant = LinkGrant(m=method, k=key, e=time.time() + expires_seconds, d=digest, b=size)
        return f"/api/v1/blobs/{self._serializer.dumps(grant.model_dump(exclude_none=True))}"

    def verify(self, signed: str, method: str) -> LinkGrant:
        """What the link permits.

        Raises:
            Forbidden: the link was not made here, is for another method, or has expired.
        """
        try:
            grant = LinkGrant.model_validate(self._serializer.loads(signed))
        except (BadSignature, ValidationError):
            raise Forbidden("bad_link", "This link is not valid. Ask for a new one.") from None
        if grant.m != method:
            raise Forbidden("bad_link", f"This link is for {grant.m}, not for {method}.")
        if grant.e < time.time():
            raise Forbidden("link_expired", "This link has expired. Ask for a new one.")
        return grant
