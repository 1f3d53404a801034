"""Identifiers: UUIDv7 inside, ``run_<base32>`` at the HTTP border.

A UUIDv7 begins with its time of birth, so sorting by id is sorting by age and new rows lie together in an index. At
the border it gets a prefix that tells a person what it names; a malformed or foreign id is a 404 like any unknown one.
"""

import base64
import secrets
import time
from typing import Literal
from uuid import UUID

from trainwright_backend.core.errors import NotFound

LARGEST_NUMBER = 2**53
"""Of counts and offsets in addresses: beyond it neither JSON's readers nor every database are exact."""

LARGEST_INTEGER = 2**31 - 1
"""Of what is compared with an INTEGER column: beyond it PostgreSQL refuses the whole query."""

Prefix = Literal["run", "ds", "key", "user", "node", "ckpt", "prep", "up", "tok", "recipe", "invite"]

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
    "recipe": "recipe",
    "invite": "invitation",
}


def new_id() -> UUID:
    """A UUIDv7 (RFC 9562): 48 bits of milliseconds, 12 of the fraction of a millisecond, 62 random ones."""
    milliseconds, rest = divmod(time.time_ns(), 1_000_000)
    fraction = (rest << 12) // 1_000_000
    return UUID(int=milliseconds << 80 | 7 << 76 | fraction << 64 | 2 << 62 | secrets.randbits(62))


def public_id(prefix: Prefix, value: UUID) -> str:
    """``value`` as people and programs see it: 26 letters and digits after the prefix."""
    return f"{prefix}_{base64.b32encode(value.bytes).decode().rstrip('=').lower()}"


def parse_id(prefix: Prefix, text: str) -> UUID:
    """The inverse of `public_id`.

    Raises:
        NotFound: ``text`` is not the one spelling that `public_id` gives to some id.
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
    """The one answer for what does not exist, belongs to somebody else or is no id at all."""
    return NotFound(f"There is no {_KIND[prefix]} {text[:80]!r} here. Check the id.")
