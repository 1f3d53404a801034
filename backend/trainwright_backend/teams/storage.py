"""What a team's files occupy: the announced bytes of its open uploads and the bytes of its stored files.

Bytes are reserved when an upload is announced and given back when it is dropped, turns out to be stored already, or
its stored file goes with its last user. The guard is one UPDATE, so uploads announced at once cannot pass the limit
together. Where files and their quota change in one transaction, the quota's row is locked first (`lock_storage`).
"""

from uuid import UUID

from sqlalchemy import select, update

from trainwright.contracts.api.people import StorageUse
from trainwright_backend.core.db import Read, Write
from trainwright_backend.core.errors import AppError
from trainwright_backend.teams.tables import StorageQuota

UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def reserve_storage(session: Write, team_id: UUID, asked_bytes: int) -> None:
    """Take ``asked_bytes`` of the team's storage, in the caller's transaction.

    Raises:
        AppError: 403 ``storage_exceeded``, naming limit, used and asked.
    """
    fits = StorageQuota.used_bytes + asked_bytes <= StorageQuota.limit_bytes
    taken = session.change(
        update(StorageQuota)
        .where(StorageQuota.team_id == team_id, fits)
        .values(used_bytes=StorageQuota.used_bytes + asked_bytes)
    )
    if not taken:
        raise _storage_exceeded(storage_use(session, team_id), asked_bytes)


def release_storage(session: Write, team_id: UUID, freed_bytes: int) -> None:
    """Give back what `reserve_storage` took; the caller does this once."""
    given = session.change(
        update(StorageQuota)
        .where(StorageQuota.team_id == team_id, StorageQuota.used_bytes >= freed_bytes)
        .values(used_bytes=StorageQuota.used_bytes - freed_bytes)
    )
    assert given, "more storage was released than was reserved"


def lock_storage(session: Write, team_id: UUID) -> None:
    """Let no other transaction change the team's files meanwhile."""
    session.execute(
        select(StorageQuota.team_id).where(StorageQuota.team_id == team_id).with_for_update()
    ).one()


def storage_use(session: Read, team_id: UUID) -> StorageUse:
    """Limit and use."""
    limit_bytes, used_bytes = session.execute(
        select(StorageQuota.limit_bytes, StorageQuota.used_bytes).where(StorageQuota.team_id == team_id)
    ).one()
    return StorageUse(limit_bytes=limit_bytes, used_bytes=used_bytes)


def set_storage_limit(session: Write, team_id: UUID, limit_bytes: int) -> None:
    """Change the limit; what is stored stays, also above it."""
    session.change(
        update(StorageQuota).where(StorageQuota.team_id == team_id).values(limit_bytes=limit_bytes)
    )


def in_words(count: int) -> str:
    """A number of bytes as people read it: `1.5 GiB`."""
    power = 0
    while power < len(UNITS) - 1 and count >= 1024 ** (power + 1):
        power += 1
    return f"{count} bytes" if not power else f"{count / 1024**power:.1f} {UNITS[power]}"


def _storage_exceeded(use: StorageUse, asked_bytes: int) -> AppError:
    return AppError(
        "storage_exceeded",
        403,
        f"This file has {in_words(asked_bytes)}; your team may store {in_words(use.limit_bytes)} and "
        f"{in_words(use.used_bytes)} are used, unfinished uploads included. Delete datasets or uploads that nobody "
        "needs, or ask a site admin to raise the limit.",
        extensions={"limit": use.limit_bytes, "used": use.used_bytes, "asked": asked_bytes},
    )
