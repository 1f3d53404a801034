"""Bytes that are to go: folders of the object store that no row names any more, or none yet.

Bytes and rows cannot change in one transaction, so a row says what is to happen to the bytes: written in the
transaction that drops the rows which named them, or before the first byte of an upload that may never get its rows.
The control loop deletes the folders; a crash in between costs time and no bytes.
"""

from datetime import datetime, timedelta

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Mapped, mapped_column

from trainwright_backend.core.db import Base, Read, UtcDateTime, Write, now

LINK_SECONDS = 3_600.0
"""How long a signed link to an object is good."""

UPLOAD_LIFE = timedelta(hours=24)
"""An upload that has no rows by then was abandoned."""


class DoomedBytes(Base):
    """A folder of the object store that is to be deleted. Signed links to it may still be used for a while."""

    __tablename__ = "doomed_bytes"

    prefix: Mapped[str] = mapped_column(primary_key=True)
    next_sweep: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    last_sweep: Mapped[datetime] = mapped_column(UtcDateTime)
    """No link is good any more: after this sweep the row goes."""
    links_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    """Nothing is deleted before: somebody may be reading by links that are out."""


def doom(session: Write, prefix: str, links_until: datetime | None = None) -> None:
    """Have the control loop delete a folder of the store, once more when no link to it is good any longer.

    Args:
        links_until: somebody may be reading by links that are good until then; it is not deleted before.
    """
    first = max(now(), links_until or now())
    last = max(first, now() + timedelta(seconds=LINK_SECONDS))
    session.merge(DoomedBytes(prefix=prefix, next_sweep=first, last_sweep=last, links_until=links_until))


def doom_unless_spared(session: Write, prefix: str) -> None:
    """Have a folder deleted that is about to be written, unless `spare` keeps it within a day."""
    end = now() + UPLOAD_LIFE
    session.merge(DoomedBytes(prefix=prefix, next_sweep=end, last_sweep=end))


def spare(session: Write, prefix: str) -> bool:
    """Keep a folder, in the transaction of the rows that name it.

    Returns:
        False when it was too late.
    """
    return session.change(delete(DoomedBytes).where(DoomedBytes.prefix == prefix)) == 1


def last_sparing(session: Read, folder: str) -> datetime | None:
    """Until when something below ``folder`` that is to be deleted is still spared, because links to it are good."""
    below = DoomedBytes.prefix.startswith(f"{folder}/", autoescape=True)
    return session.scalar(
        select(func.max(DoomedBytes.links_until)).where(below, DoomedBytes.links_until > now())
    )


def is_doomed(session: Read, prefix: str) -> bool:
    """Whether the folder will be deleted."""
    return session.get(DoomedBytes, prefix) is not None
