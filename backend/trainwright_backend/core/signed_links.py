"""Signed links: the right to read or write one object, for a while.

The signature is the permission: a link names one method and one key, and expires. An upload link also names the size and
digest that the object must have.
"""

import time
from typing import Literal

from itsdangerous import BadSignature, URLSafeSerializer
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from trainwright_backend.core.errors import Forbidden


class LinkGrant(BaseModel):
    """What a signed link permits. Its fields are sent under short names, which keep links short."""

    model_config = ConfigDict(populate_by_name=True)

    method: str = Field(alias="m")
    key: str = Field(alias="k")
    expires_at: float = Field(alias="e")
    """In seconds since the epoch."""

    digest: str | None = Field(default=None, alias="d")
    """Digest of an upload."""

    size_bytes: int | None = Field(default=None, alias="b")
    """Size of an upload."""


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
        grant = LinkGrant(
            method=method, key=key, expires_at=time.time() + expires_seconds, digest=digest, size_bytes=size
        )
        return f"/api/v1/blobs/{self._serializer.dumps(grant.model_dump(by_alias=True, exclude_none=True))}"

    def verify(self, signed: str, method: str) -> LinkGrant:
        """What the link permits.

        Raises:
            Forbidden: the link was not made here, is for another method, or has expired.
        """
        try:
            grant = LinkGrant.model_validate(self._serializer.loads(signed))
        except (BadSignature, ValidationError):
            raise Forbidden("bad_link", "This link is not valid. Ask for a new one.") from None
        if grant.method != method:
            raise Forbidden("bad_link", f"This link is for {grant.method}, not for {method}.")
        if grant.expires_at < time.time():
            raise Forbidden("link_expired", "This link has expired. Ask for a new one.")
        return grant
