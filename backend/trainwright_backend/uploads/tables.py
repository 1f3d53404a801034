"""Files of a team: uploads in progress, and stored files.

A team's identical files are stored once. Uploads, versions and tokenizers refer to a stored file; it is deleted with its
last user, which the foreign keys determine.
"""

from datetime import datetime
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column, relationship

from trainwright_backend.core.db import Base, UtcDateTime, now
from trainwright_backend.core.ids import new_id


class StoredFile(Base):
    """A complete file of a team; its bytes never change."""

    __tablename__ = "stored_file"
    __table_args__ = (Index("ix_stored_file_team_id_digest", "team_id", "digest"),)

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    team_id: Mapped[UUID] = mapped_column(ForeignKey("team.id", ondelete="CASCADE"))
    digest: Mapped[str] = mapped_column(String(64))
    """SHA-256, in hex. Files with the same digest are the same; older releases stored some of them twice."""

    bytes: Mapped[int] = mapped_column(BigInteger)
    object_key: Mapped[str] = mapped_column(String(255), unique=True)
    created: Mapped[datetime] = mapped_column(UtcDateTime, default=now)
    created_by: Mapped[UUID | None]
    """Who was the first to upload it, whose storage it counts for. No foreign key: an account may be deleted."""


class Upload(Base):
    """A resumable upload (tus 1.0). The row says how many bytes are safe; bytes on disk beyond them do not count."""

    __tablename__ = "upload"
    __table_args__ = (
        Index("ix_upload_team_id_id", "team_id", "id"),
        CheckConstraint('"offset" >= 0 AND "offset" <= bytes', name="offset_within_bytes"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    team_id: Mapped[UUID] = mapped_column(ForeignKey("team.id", ondelete="CASCADE"))
    created_by: Mapped[UUID | None] = mapped_column(ForeignKey("account.id", ondelete="SET NULL"), index=True)
    file_name: Mapped[str] = mapped_column(String(255))
    """Includes folders within the upload, separated by `/`; never a path on the server."""

    bytes: Mapped[int] = mapped_column(BigInteger)
    """Announced size, reserved in the team's storage until the upload is stored or deleted."""

    offset: Mapped[int] = mapped_column(BigInteger, default=0)
    """Bytes that are safely on disk."""

    stored_file_id: Mapped[UUID | None] = mapped_column(
        ForeignKey("stored_file.id", ondelete="RESTRICT"), index=True
    )
    """Set once the upload is complete."""

    created: Mapped[datetime] = mapped_column(UtcDateTime, default=now)
    expires: Mapped[datetime] = mapped_column(UtcDateTime, index=True)

    stored_file: Mapped[StoredFile | None] = relationship()


class UploadSegment(Base):
    """Bytes of an unfinished upload that are an object of their own, where the object store is a bucket."""

    __tablename__ = "upload_segment"

    upload_id: Mapped[UUID] = mapped_column(ForeignKey("upload.id", ondelete="CASCADE"), primary_key=True)
    start: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    """Position of its first byte in the upload."""

    name: Mapped[str] = mapped_column(String(32))
    """Name of the object in the upload's folder."""
