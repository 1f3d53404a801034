"""When the newest backup was made, for the metrics: an operator learns that backups have stopped."""

from datetime import datetime
from uuid import UUID, uuid4

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Mapped, mapped_column

from trainwright_backend.core.db import Base, Read, UtcDateTime, Write


class CompletedBackup(Base):
    """A backup whose manifest is written. Older ones than the newest have no row."""

    __tablename__ = "completed_backup"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    state_of: Mapped[datetime] = mapped_column(UtcDateTime)
    """Everything that was committed before this time is in the backup."""


def record_backup(session: Write, state_of: datetime) -> None:
    """Record that a backup is complete."""
    session.execute(delete(CompletedBackup).where(CompletedBackup.state_of < state_of))
    session.add(CompletedBackup(id=uuid4(), state_of=state_of))


def newest_backup(session: Read) -> datetime | None:
    """The time whose state the newest backup has; None without one."""
    return session.scalar(select(func.max(CompletedBackup.state_of)))
