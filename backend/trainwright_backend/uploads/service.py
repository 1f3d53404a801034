"""Uploads and stored files as rows, and their share of the team's storage. `receiver` handles the bytes.

An upload is open until its row names a stored file. The same transaction sets its offset to its size, so an upload whose
offset equals its size is complete. A stored file is deleted with its last user, which the foreign keys determine.
Transactions that change files and storage together lock the team's storage.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from sqlalchemy import Select, delete, func, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import selectinload

from trainwright.contracts.api.uploads import Upload as UploadOut
from trainwright.contracts.base import Problem
from trainwright_backend.auth.tables import Account
from trainwright_backend.core.db import Read, Write, now
from trainwright_backend.core.deletion_queue import keep, queue_deletion
from trainwright_backend.core.errors import AppError, Conflict, Invalid, NotFound
from trainwright_backend.core.ids import parse_id, public_id, unknown
from trainwright_backend.teams.idempotency import deleted_error, reserve_key
from trainwright_backend.teams.storage_quota import lock_storage, release_storage, reserve_storage
from trainwright_backend.teams.tables import IdempotencyKey
from trainwright_backend.uploads import errors
from trainwright_backend.uploads.tables import StoredFile, Upload, UploadSegment

LIFETIME = timedelta(hours=24)
"""An upload expires after this time without new bytes, or without a dataset that uses it."""

MAX_UPLOADS = 10_000
"""Uploads that a team can have at once."""

MAX_UPLOADS_PER_PERSON = 2_000
"""Uploads that one person can have at once. A dataset has at most 1,000 files."""

OBJECT_NAME = "data"


@dataclass(frozen=True)
class UploadedFile:
    """A complete upload."""

    name: str
    bytes: int
    digest: str
    stored_file_id: UUID
    object_key: str


def earlier_upload(
    session: Write, team_id: UUID, key: str | None, file_name: str, announced_bytes: int
) -> Upload | None:
    """The upload that an earlier request with this Idempotency-Key created; otherwise the key is reserved.

    Raises:
        AppError: 422 ``idempotency_key_reused``: the key was used for another file; 410: the upload was deleted or has expired.
    """
    earlier = reserve_key(session, team_id, key, {"file_name": file_name, "bytes": announced_bytes})
    if earlier is None:
        return None
    found = None if earlier.upload_id is None else session.get(Upload, earlier.upload_id)
    if found is None or found.expires <= now():
        raise deleted_error("upload")
    return found


def create_upload(
    session: Write,
    team_id: UUID,
    user_id: UUID,
    file_name: str,
    announced_bytes: int,
    key: str | None = None,
) -> Upload:
    """Create an upload without bytes, and reserve its size in the team's storage. ``key``: see `earlier_upload`.

    Raises:
        AppError: the team's storage has no room for it.
    """
    reserve_storage(session, team_id, announced_bytes)
    for owner, most, condition in (
        ("Your team has", MAX_UPLOADS, Upload.team_id == team_id),
        ("You have", MAX_UPLOADS_PER_PERSON, Upload.created_by == user_id),
    ):
        if (session.scalar(select(func.count()).where(condition)) or 0) >= most:
            detail = (
                f"{owner} {most:,} uploads that no dataset uses. Create datasets from them or delete some."
            )
            raise Conflict("too_many_uploads", detail)
    upload = Upload(
        team_id=team_id,
        created_by=user_id,
        file_name=file_name,
        bytes=announced_bytes,
        expires=now() + LIFETIME,
    )
    session.add(upload)
    session.flush()
    if key is not None:
        session.get_one(IdempotencyKey, (team_id, key)).upload_id = upload.id
        session.flush()
    return upload


def find_upload(session: Read, team_id: UUID, upload: str) -> Upload:
    """An upload of the team, by its public id.

    Raises:
        NotFound: the team has no such upload.
        AppError: 410, the upload has expired.
    """
    found = session.get(Upload, parse_id("up", upload))
    if found is None or found.team_id != team_id:
        raise unknown("up", upload)
    if found.expires <= now():
        raise expired(found.file_name)
    return found


def list_uploads(
    session: Read, team_id: UUID, user_id: UUID, limit: int | None = None, before: str | None = None
) -> list[UploadOut]:
    """Uploads in progress and complete ones that nothing uses yet, newest first, as ``user_id`` sees them.

    Args:
        limit: the most uploads that are returned.
        before: id of an upload; only older ones.

    Raises:
        Invalid: ``before`` is not the id of an upload.
    """
    older = () if before is None else (Upload.id < _cursor_id(before),)
    rows = session.execute(
        select(Upload, Account.name)
        .outerjoin(Account, Account.id == Upload.created_by)
        .where(Upload.team_id == team_id, Upload.expires > now(), *older)
        .order_by(Upload.id.desc())
        .limit(limit)
        .options(selectinload(Upload.stored_file))
    )
    return [_to_response(row, name, user_id) for row, name in rows]


def _cursor_id(cursor: str) -> UUID:
    try:
        return parse_id("up", cursor)
    except NotFound:
        rule = "This cursor is not valid here: use `next_cursor` of the previous page."
        raise Invalid.at("cursor", rule, cursor) from None


def advance(session: Write, upload_id: UUID, start: int, end: int, segment: str | None) -> None:
    """Record that the bytes from ``start`` to ``end`` are safe, in the object ``segment`` if it is not None.

    Raises:
        NotFound: the upload was deleted in the meantime.
        AppError: 409, another process has stored bytes from ``start`` on.
    """
    advanced = session.change(
        update(Upload)
        .where(Upload.id == upload_id, Upload.offset == start, Upload.stored_file_id.is_(None))
        .values(offset=end, expires=now() + LIFETIME)
    )
    if not advanced:
        raise _overtaken(session.get(Upload, upload_id), upload_id, start)
    if segment is not None:
        session.add(UploadSegment(upload_id=upload_id, start=start, name=segment))


def find_segments(session: Read, upload_id: UUID) -> list[str]:
    """The objects with the bytes of an unfinished upload, in order."""
    found = select(UploadSegment.name).where(UploadSegment.upload_id == upload_id)
    return list(session.scalars(found.order_by(UploadSegment.start)))


def complete(
    session: Write, team_id: UUID, upload_id: UUID, digest: str, stored_file_id: UUID | None
) -> bool:
    """Complete an upload with the stored file that has the same bytes, or else with a new one.

    Args:
        digest: SHA-256 of all bytes, in hex.
        stored_file_id: id of the new stored file, whose object is in the store and queued for deletion unless kept.
            None only checks whether the bytes are stored already.

    Returns:
        Whether the upload is complete now.

    Raises:
        NotFound: the upload was deleted in the meantime.
        AppError: 409, another process has completed it.
    """
    lock_storage(session, team_id)
    upload = session.scalar(select(Upload).where(Upload.id == upload_id).with_for_update())
    if upload is None or upload.stored_file_id is not None:
        raise _overtaken(upload, upload_id, upload.bytes if upload else 0)
    same = select(StoredFile.id).where(StoredFile.team_id == team_id, StoredFile.digest == digest)
    found = session.scalars(same.order_by(StoredFile.id).limit(1)).one_or_none()
    if found is None and stored_file_id is None:
        return False
    if found is not None:
        release_storage(session, team_id, upload.bytes)
        if stored_file_id is not None:
            queue_deletion(session, object_folder(team_id, stored_file_id))
    elif stored_file_id is not None:
        _store(session, upload, digest, stored_file_id)
    upload.stored_file_id = found or stored_file_id
    upload.offset = upload.bytes
    upload.expires = now() + LIFETIME
    session.flush()
    return True


def _overtaken(row: Upload | None, upload_id: UUID, start: int) -> AppError:
    return unknown("up", public_id("up", upload_id)) if row is None else errors.wrong_offset(row, start)


def delete_upload(session: Write, team_id: UUID, upload_id: UUID) -> None:
    """Delete an upload. Its reserved storage, or its stored file if nothing else uses it, is freed."""
    lock_storage(session, team_id)
    upload = session.scalar(
        select(Upload).where(Upload.id == upload_id, Upload.team_id == team_id).with_for_update()
    )
    if upload is None:
        return
    stored_file_id = upload.stored_file_id
    session.delete(upload)
    session.flush()
    if stored_file_id is None:
        release_storage(session, team_id, upload.bytes)
    else:
        delete_unused_files(session, team_id, [stored_file_id])


def complete_uploads(session: Write, team_id: UUID, ids: Sequence[str]) -> list[UploadedFile]:
    """The complete uploads of these public ids, in order; their rows and the team's storage are locked.

    Raises:
        Invalid: at `uploads`, for each one that is unknown, named twice or not complete.
    """
    lock_storage(session, team_id)  # otherwise this could deadlock with the deletion of a file's last user
    wanted = {text: _id_or_none(text) for text in ids}
    rows = {
        row.id: row
        for row in session.scalars(
            select(Upload)
            .where(Upload.team_id == team_id, Upload.id.in_([item for item in wanted.values() if item]))
            .where(Upload.expires > now())
            .order_by(Upload.id)
            .options(selectinload(Upload.stored_file))
            .with_for_update()
        )
    }
    problems = [_problem(text, rows.get(one) if one else None, ids) for text, one in wanted.items()]
    if found := [problem for problem in problems if problem is not None]:
        raise Invalid(found)
    return [_uploaded(rows[parse_id("up", text)]) for text in ids]


def consume_uploads(session: Write, team_id: UUID, ids: Sequence[str]) -> None:
    """Delete uploads whose stored files are now in use, in the transaction of `complete_uploads`."""
    session.change(
        delete(Upload).where(Upload.team_id == team_id, Upload.id.in_([parse_id("up", text) for text in ids]))
    )


def delete_unused_files(session: Write, team_id: UUID, stored_file_ids: Sequence[UUID]) -> None:
    """Delete the files that nothing uses any more, and free their storage.

    A transaction that deletes users of a file must call `lock_storage` before that: two transactions that each delete one
    of its last two users would deadlock.
    """
    lock_storage(session, team_id)
    for stored_file_id in sorted(set(stored_file_ids)):
        file = session.get(StoredFile, stored_file_id)
        if file is None or file.team_id != team_id:
            continue
        try:
            with session.begin_nested():
                session.change(delete(StoredFile).where(StoredFile.id == stored_file_id))
        except IntegrityError:
            continue  # something uses it
        session.expunge(file)
        release_storage(session, team_id, file.bytes)
        queue_deletion(session, file.object_key.removesuffix(f"/{OBJECT_NAME}"))


def find_expired_uploads() -> Select[UUID]:
    """The uploads that have expired."""
    return select(Upload.id).where(Upload.expires <= now())


def delete_expired_upload(session: Write, upload_id: UUID) -> None:
    """Delete an expired upload, unless bytes arrived in the meantime."""
    expired = select(Upload.team_id).where(Upload.id == upload_id, Upload.expires <= now())
    team_id = session.scalar(expired)
    if team_id is not None:
        delete_upload(session, team_id, upload_id)


def without_open_upload(session: Read, ids: Sequence[UUID]) -> list[UUID]:
    """The ``ids`` whose upload is complete or no longer exists."""
    open_ones = set(
        session.scalars(select(Upload.id).where(Upload.id.in_(ids), Upload.stored_file_id.is_(None)))
    )
    return [item for item in ids if item not in open_ones]


def object_folder(team_id: UUID, stored_file_id: UUID) -> str:
    """The folder of a stored file's object."""
    return f"{team_id}/files/{stored_file_id}"


def expired(file_name: str) -> AppError:
    return AppError(
        "upload_expired", 410, f"The upload of {file_name!r} has expired. Send the file again from its start."
    )


def _store(session: Write, upload: Upload, digest: str, stored_file_id: UUID) -> None:
    folder = object_folder(upload.team_id, stored_file_id)
    if not keep(session, folder):
        raise Conflict(
            "upload_too_slow", "The upload took longer than a day to complete. Send the file again."
        )
    session.add(
        StoredFile(
            id=stored_file_id,
            team_id=upload.team_id,
            digest=digest,
            bytes=upload.bytes,
            object_key=f"{folder}/{OBJECT_NAME}",
            created_by=upload.created_by,
        )
    )
    session.flush()


def _id_or_none(text: str) -> UUID | None:
    try:
        return parse_id("up", text)
    except NotFound:
        return None


def _problem(text: str, row: Upload | None, ids: Sequence[str]) -> Problem | None:
    if row is None:
        message = f"There is no upload {text[:80]!r}, or a dataset uses it already. Upload the file again."
    elif row.stored_file_id is None:
        message = (
            f"The upload of {row.file_name!r} is not complete: {row.offset:,} of {row.bytes:,} bytes are stored. "
            "Upload the rest first."
        )
    elif list(ids).count(text) > 1:
        message = f"The upload of {row.file_name!r} is named twice. Name it once."
    else:
        return None
    return Problem(field="uploads", message=message, value=text[:80])


def _uploaded(row: Upload) -> UploadedFile:
    stored = row.stored_file
    assert stored is not None
    return UploadedFile(row.file_name, stored.bytes, stored.digest, stored.id, stored.object_key)


def _to_response(row: Upload, sender: str | None, user_id: UUID) -> UploadOut:
    return UploadOut(
        id=public_id("up", row.id),
        file_name=row.file_name,
        bytes=row.bytes,
        offset=row.offset,
        complete=row.stored_file is not None,
        digest=None if row.stored_file is None else row.stored_file.digest,
        created=row.created,
        created_by=sender,
        mine=row.created_by == user_id,
        expires=row.expires,
    )
