"""The deletion queue: folders of the object store that no row refers to, either no longer or not yet.

Bytes and rows cannot change in one transaction, so a row records that a folder is to be deleted. It is written in the
transaction that deletes the rows that refer to the folder, or before the first byte of an upload that may never get its
rows. The control loop deletes the folders. A crash in between causes a delay, but no loss of data.
"""

from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Mapped, mapped_column

from trainwright_backend.core.db import Base, Read, UtcDateTime, Write, now

LINK_SECONDS = 3_600.0
"""How long a signed link to an object is valid."""

UPLOAD_LIFETIME = timedelta(hours=24)
"""An upload that has no rows after this time was abandoned."""

KEEP_MARGIN = timedelta(minutes=1)
"""A folder is not taken off the queue this shortly before its deletion. It is longer than a transaction takes."""


class QueuedDeletion(Base):
    """A folder of the object store that is to be deleted. Signed links to it may still be valid for a while."""

    __tablename__ = "deletion_queue"

    prefix: Mapped[str] = mapped_column(primary_key=True)
    delete_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    final_delete_at: Mapped[datetime] = mapped_column(UtcDateTime)
    """By then no link is valid: the deletion at this time is the last, and removes the row."""

    links_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    """Nothing is deleted before this time, because valid links may be in use."""


class DeletionHold(Base):
    """Nothing that is queued is deleted before ``until``: a backup is copying the objects of its rows."""

    __tablename__ = "deletion_hold"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    until: Mapped[datetime] = mapped_column(UtcDateTime)


def is_held(session: Read) -> bool:
    """Whether a backup needs what is queued for deletion."""
    return session.scalar(select(DeletionHold.id).where(DeletionHold.until > now()).limit(1)) is not None


def queue_deletion(session: Write, prefix: str, links_until: datetime | None = None) -> None:
    """Let the control loop delete a folder of the store now, and once more when no link to it is valid any longer.

    Args:
        links_until: when the last link that may be in use expires; the folder is not deleted before.
    """
    first = max(now(), links_until or now())
    final = max(first, now() + timedelta(seconds=LINK_SECONDS))
    session.merge(
        QueuedDeletion(prefix=prefix, delete_at=first, final_delete_at=final, links_until=links_until)
    )


def queue_deletion_unless_kept(session: Write, prefix: str) -> None:
    """Let a folder that is about to be written be deleted, unless `keep` is called for it within a day."""
    end = now() + UPLOAD_LIFETIME
    session.merge(QueuedDeletion(prefix=prefix, delete_at=end, final_delete_at=end))


def keep(session: Write, prefix: str) -> bool:
    """Take a folder off the queue, in the transaction that writes the rows that name it.

    Returns:
        False when it is too late: the folder is being deleted, or will be before the transaction commits.
    """
    in_time = (QueuedDeletion.prefix == prefix, QueuedDeletion.delete_at > now() + KEEP_MARGIN)
    return session.change(delete(QueuedDeletion).where(*in_time)) == 1


def latest_link_expiry(session: Read, folder: str) -> datetime | None:
    """When the last valid link to anything queued below ``folder`` expires; None without such links."""
    below = QueuedDeletion.prefix.startswith(f"{folder}/", autoescape=True)
    return session.scalar(
        select(func.max(QueuedDeletion.links_until)).where(below, QueuedDeletion.links_until > now())
    )
