"""API keys: ``tw_<prefix>_<192 random bits><checksum>``, shown once and stored as a keyed hash.

The prefix identifies keys in lists. The checksum lets secret scanners, and this API, recognize a mistyped or invented key
without a database query.
"""

import base64
import re
import zlib
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from sqlalchemy import bindparam, delete, or_, select, update

from trainwright.contracts.api.people import ApiKey as ApiKeyOut
from trainwright.contracts.api.people import CreatedKey, KeyScope, NewKey
from trainwright_backend.auth.service import LAST_USED_INTERVAL
from trainwright_backend.auth.tables import Account, ApiKey
from trainwright_backend.core.db import Database, Read, Write, now
from trainwright_backend.core.errors import Busy, Conflict, Unauthorized
from trainwright_backend.core.ids import new_id, parse_id, public_id, unknown
from trainwright_backend.core.security import keyed_hash, new_token
from trainwright_backend.core.settings import Settings

MAX_KEYS = 100
"""Keys that one account can have."""

_SHAPE = re.compile(r"tw_([0-9a-f]{8})_([A-Za-z0-9_-]{32})([a-z2-7]{7})")

_OWNER = (
    select(Account, ApiKey.id, ApiKey.prefix, ApiKey.last_used, ApiKey.scope, ApiKey.expires)
    .join(ApiKey, ApiKey.user_id == Account.id)
    .where(ApiKey.hash == bindparam("hash"))
)
"""Built once (see `core.db`)."""


@dataclass(frozen=True)
class KeyOwner:
    """The owner of a valid key, and what the key may do."""

    account: Account
    scope: KeyScope
    via: str
    """The key's prefix, or `audit.BROWSER`."""
    key_id: UUID | None = None
    """None for a browser."""


def create_key(session: Write, settings: Settings, user_id: UUID, new: NewKey) -> CreatedKey:
    """Create a key for the account. Its secret is only in the response."""
    if len(list_keys(session, user_id)) >= MAX_KEYS:
        raise Conflict(
            "too_many_keys", f"There are {MAX_KEYS} API keys already. Revoke one that is no longer used."
        )
    row_id = new_id()
    prefix = f"tw_{row_id.hex[-8:]}"
    body = f"{prefix}_{new_token()}"
    secret = f"{body}{_checksum(body)}"
    created = now()
    row = ApiKey(
        id=row_id,
        user_id=user_id,
        name=new.name,
        prefix=prefix,
        hash=_hash(settings, secret),
        created=created,
        scope=new.scope,
        expires=None if new.lifetime_days is None else created + timedelta(days=new.lifetime_days),
    )
    session.add(row)
    session.flush()
    return CreatedKey(**_to_response(row).model_dump(), secret=secret)


def list_keys(session: Read, user_id: UUID) -> list[ApiKeyOut]:
    """The account's keys, newest first, also expired ones."""
    rows = session.scalars(select(ApiKey).where(ApiKey.user_id == user_id).order_by(ApiKey.id.desc()))
    return [_to_response(row) for row in rows]


def delete_key(session: Write, user_id: UUID, key: str) -> None:
    """Revoke a key of the account; it is invalid from the commit on."""
    row = session.get(ApiKey, parse_id("key", key))
    if row is None or row.user_id != user_id:
        raise unknown("key", key)
    session.deleted_names = (row.name,)
    session.delete(row)


def delete_used_key(session: Write, key_id: UUID | None) -> None:
    """Revoke the key with which this request came.

    Raises:
        Conflict: it came from a browser.
    """
    if key_id is None:
        raise Conflict(
            "no_key", "This request was sent without an API key. To end the session of a browser, sign out."
        )
    name = session.scalar(delete(ApiKey).where(ApiKey.id == key_id).returning(ApiKey.name))
    session.deleted_names = () if name is None else (name,)


def owner_of_key(database: Database, settings: Settings, secret: str) -> KeyOwner | None:
    """The owner of a key; None for an unknown or revoked key. Its use is recorded now and then.

    Raises:
        Unauthorized: the key has expired.
    """
    if not is_well_formed(secret):
        return None
    with database.read() as session:
        row = session.execute(_OWNER, {"hash": _hash(settings, secret)}).one_or_none()
    if row is None:
        return None
    account, key_id, prefix, last_used, scope, expires = row
    if expires is not None and expires <= now():
        raise Unauthorized(
            f"This API key expired on {expires:%Y-%m-%d}. Create a new one on the Settings page."
        )
    if last_used is None or now() - last_used > LAST_USED_INTERVAL:
        _record_use(database, key_id)
    return KeyOwner(account, KeyScope(scope), prefix, key_id)


def _record_use(database: Database, key_id: UUID) -> None:
    stale = or_(ApiKey.last_used.is_(None), ApiKey.last_used < now() - LAST_USED_INTERVAL)
    try:
        with database.write() as session:
            session.execute(update(ApiKey).where(ApiKey.id == key_id, stale).values(last_used=now()))
    except Busy:
        pass  # the next use is recorded


def is_well_formed(secret: str) -> bool:
    """Whether ``secret`` has the shape of a key and the right checksum."""
    found = _SHAPE.fullmatch(secret)
    return found is not None and _checksum(secret[: -len(found[3])]) == found[3]


def _checksum(body: str) -> str:
    return base64.b32encode(zlib.crc32(body.encode()).to_bytes(4, "big")).decode().rstrip("=").lower()


def _hash(settings: Settings, secret: str) -> str:
    return keyed_hash(settings.secret_key, "api_key", secret)


def _to_response(row: ApiKey) -> ApiKeyOut:
    return ApiKeyOut(
        id=public_id("key", row.id),
        name=row.name,
        prefix=row.prefix,
        created=row.created,
        last_used=row.last_used,
        scope=KeyScope(row.scope),
        expires=row.expires,
    )
