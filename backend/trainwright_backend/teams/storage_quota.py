"""The storage quota of a team: the announced bytes of its open uploads plus the bytes of its stored files.

Bytes are reserved when an upload is announced. They are released when the upload is deleted, when its file turns out to be
stored already, or when its stored file is deleted with its last user. A single UPDATE guards the limit, so concurrent
uploads cannot exceed it together. Transactions that change files and their quota lock the quota's row first
(`lock_storage`).
"""

from collections.abc import Collection
from uuid import UUID

from sqlalchemy import select, update

from trainwright.contracts.api.people import StorageUse
from trainwright.sizes import format_bytes
from trainwright_backend.core.db import Read, Write
from trainwright_backend.core.errors import AppError
from trainwright_backend.teams.tables import StorageQuota


def reserve_storage(session: Write, team_id: UUID, requested_bytes: int) -> None:
    """Reserve bytes of the team's storage, in the caller's transaction.

    Raises:
        AppError: 403 ``storage_exceeded``, with limit, used and requested bytes.
    """
    fits = StorageQuota.used_bytes + requested_bytes <= StorageQuota.limit_bytes
    taken = session.change(
        update(StorageQuota)
        .where(StorageQuota.team_id == team_id, fits)
        .values(used_bytes=StorageQuota.used_bytes + requested_bytes)
    )
    if not taken:
        raise _storage_exceeded(storage_use(session, team_id), requested_bytes)


def release_storage(session: Write, team_id: UUID, freed_bytes: int) -> None:
    """Release what `reserve_storage` reserved. The caller must do this only once."""
    given = session.change(
        update(StorageQuota)
        .where(StorageQuota.team_id == team_id, StorageQuota.used_bytes >= freed_bytes)
        .values(used_bytes=StorageQuota.used_bytes - freed_bytes)
    )
    assert given, "more storage was released than was reserved"


def lock_storage(session: Write, team_id: UUID) -> None:
    """Lock the team's files against changes by other transactions."""
    session.execute(
        select(StorageQuota.team_id).where(StorageQuota.team_id == team_id).with_for_update()
    ).one()


def storage_use(session: Read, team_id: UUID) -> StorageUse:
    """Limit and use of the team's storage."""
    return all_storage_use(session, {team_id})[team_id]


def all_storage_use(session: Read, team_ids: Collection[UUID]) -> dict[UUID, StorageUse]:
    """Limit and use of the storage of some teams."""
    columns = (StorageQuota.team_id, StorageQuota.limit_bytes, StorageQuota.used_bytes)
    rows = session.execute(select(*columns).where(StorageQuota.team_id.in_(team_ids)))
    return {row.team_id: StorageUse(limit_bytes=row.limit_bytes, used_bytes=row.used_bytes) for row in rows}


def set_storage_limit(session: Write, team_id: UUID, limit_bytes: int) -> None:
    """Change the limit. Stored files stay, even above it."""
    session.change(
        update(StorageQuota).where(StorageQuota.team_id == team_id).values(limit_bytes=limit_bytes)
    )


def _storage_exceeded(use: StorageUse, requested_bytes: int) -> AppError:
    return AppError(
        "storage_exceeded",
        403,
        f"This file has {format_bytes(requested_bytes)}; your team can store {format_bytes(use.limit_bytes)} and "
        f"{format_bytes(use.used_bytes)} are used, including unfinished uploads. Delete datasets or uploads that nobody "
        "needs, or ask a site admin to raise the limit.",
        extensions={"limit": use.limit_bytes, "used": use.used_bytes, "asked": requested_bytes},
    )
