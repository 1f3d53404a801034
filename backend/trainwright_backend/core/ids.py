"""Identifiers: UUIDv7 internally, ``run_<base32>`` in the API.

A UUIDv7 starts with its creation time, so sorting by id sorts by age, and new rows are adjacent in an index. In the API it
has a prefix that says what it identifies. A malformed id, or one of another team, is a 404 like any unknown id.
"""

import base64
import secrets
import time
from typing import Literal
from uuid import UUID

from trainwright_backend.core.errors import NotFound

MAX_NUMBER = 2**53
"""The largest count or offset in an address: JSON parsers and some databases are not exact beyond it."""

MAX_INTEGER = 2**31 - 1
"""The largest number that is compared with an INTEGER column: PostgreSQL refuses queries with larger ones."""

Prefix = Literal[
    "run",
    "ds",
    "key",
    "user",
    "node",
    "ckpt",
    "prep",
    "up",
    "tok",
    "recipe",
    "invite",
    "session",
    "view",
    "hook",
    "msg",
    "notice",
    "identity",
]

_KIND: dict[Prefix, str] = {
    "run": "run",
    "ds": "dataset",
    "key": "API key",
    "user": "person",
    "node": "node",
    "ckpt": "checkpoint",
    "prep": "preparation",
    "up": "upload",
    "tok": "tokenizer",
    "view": "view",
    "recipe": "recipe",
    "invite": "invitation",
    "session": "session",
    "hook": "webhook",
    "msg": "message",
    "notice": "notice",
    "identity": "identity",
}


def new_id() -> UUID:
    """A UUIDv7 (RFC 9562): 48 bits of milliseconds, 12 of the fraction of a millisecond, 62 random ones."""
    milliseconds, rest = divmod(time.time_ns(), 1_000_000)
    fraction = (rest << 12) // 1_000_000
    return UUID(int=milliseconds << 80 | 7 << 76 | fraction << 64 | 2 << 62 | secrets.randbits(62))


def public_id(prefix: Prefix, value: UUID) -> str:
    """The public form of an id: the prefix, then 26 letters and digits."""
    return f"{prefix}_{base64.b32encode(value.bytes).decode().rstrip('=').lower()}"


def parse_id(prefix: Prefix, text: str) -> UUID:
    """The inverse of `public_id`.

    Raises:
        NotFound: ``text`` is not exactly what `public_id` returns for some id.
    """
    kind, _, digits = text.partition("_")
    if kind == prefix and len(digits) == 26 and digits.isascii() and digits.isalnum():
        try:
            value = UUID(bytes=base64.b32decode(f"{digits.upper()}======"))
        except ValueError:
            raise unknown(prefix, text) from None
        if public_id(prefix, value) == text:
            return value
    raise unknown(prefix, text)


def unknown(prefix: Prefix, text: str) -> NotFound:
    """The same error for an object that does not exist, one of another team, and a malformed id."""
    return NotFound(f"There is no {_KIND[prefix]} {text[:80]!r} here. Check the id.")
