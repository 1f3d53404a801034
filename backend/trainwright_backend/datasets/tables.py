"""Datasets, their immutable versions, and preparations: the tokens of a version for one tokenizer and split.

A preparation is worked in slices, each under a lease of its own; the rows say what is done, messages only say that
there is something to do. Everything goes with its dataset; a preparation that a run uses cannot (409 naming the runs).
"""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import JSON, BigInteger, ForeignKey, Index, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column, relationship

from trainwright_backend.core.db import Base, UtcDateTime, now
from trainwright_backend.core.ids import new_id


class Dataset(Base):
    """Text that a team uploaded, under one name."""

    __tablename__ = "dataset"
    __table_args__ = (Index("ix_dataset_team_id_id", "team_id", "id"),)

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    team_id: Mapped[UUID] = mapped_column(ForeignKey("team.id", ondelete="CASCADE"))
    name: Mapped[str] = mapped_column(String(80))
    created: Mapped[datetime] = mapped_column(UtcDateTime, default=now)
    created_by: Mapped[UUID | None] = mapped_column(ForeignKey("account.id", ondelete="SET NULL"), index=True)
    created_by_name: Mapped[str] = mapped_column(String(80))
    """Name of the person at the upload, which outlives the account."""

    versions: Mapped[list["DatasetVersion"]] = relationship(
        order_by="DatasetVersion.number.desc()", passive_deletes=True
    )


class DatasetVersion(Base):
    """One upload; never changed."""

    __tablename__ = "dataset_version"
    __table_args__ = (UniqueConstraint("dataset_id", "number"),)

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    dataset_id: Mapped[UUID] = mapped_column(ForeignKey("dataset.id", ondelete="CASCADE"))
    number: Mapped[int]
    created: Mapped[datetime] = mapped_column(UtcDateTime, default=now)
    bytes: Mapped[int] = mapped_column(BigInteger)
    digest: Mapped[str] = mapped_column(String(64))
    """SHA-256 over names and digests of the files, in order."""

    files: Mapped[list["DatasetFile"]] = relationship(order_by="DatasetFile.position", passive_deletes=True)
    preparations: Mapped[list["Preparation"]] = relationship(
        order_by="Preparation.id", passive_deletes=True, back_populates="version"
    )


class DatasetFile(Base):
    """One file of a version."""

    __tablename__ = "dataset_file"

    version_id: Mapped[UUID] = mapped_column(
        ForeignKey("dataset_version.id", ondelete="CASCADE"), primary_key=True
    )
    position: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(255))
    bytes: Mapped[int] = mapped_column(BigInteger)
    digest: Mapped[str] = mapped_column(String(64))
    object_key: Mapped[str] = mapped_column(String(255))


class Preparation(Base):
    """The tokens of a version for one tokenizer and split."""

    __tablename__ = "preparation"
    __table_args__ = (UniqueConstraint("version_id", "digest"),)

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    team_id: Mapped[UUID] = mapped_column(ForeignKey("team.id", ondelete="CASCADE"), index=True)
    version_id: Mapped[UUID] = mapped_column(ForeignKey("dataset_version.id", ondelete="CASCADE"))
    digest: Mapped[str] = mapped_column(String(64))
    """Names its input: version, tokenizer, split and format. Its objects lie in a folder of this name."""

    tokenizer: Mapped[dict[str, Any]] = mapped_column(JSON)
    validation_fraction: Mapped[float]
    state: Mapped[str] = mapped_column(String(16), index=True)
    """A `PreparationState`."""

    error: Mapped[str | None]
    """Why it failed, and what to do."""

    failures: Mapped[int] = mapped_column(default=0)
    """Errors of workers since the last step that was made; the third ends it."""

    may_be_repeated: Mapped[bool] = mapped_column(default=False)
    """It failed for a reason that does not lie in the data, so the next submission begins it anew."""

    lease: Mapped[UUID | None]
    """Who plans or completes it now."""

    leased_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    touched: Mapped[datetime] = mapped_column(UtcDateTime, default=now)
    """Its last progress, or the last time that messages were sent for it."""

    shards_done: Mapped[int] = mapped_column(default=0)
    shards_total: Mapped[int | None]
    manifest: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    """A `ShardManifest`, when ready."""

    manifest_digest: Mapped[str | None] = mapped_column(String(64))
    manifest_bytes: Mapped[int | None]
    tokenizer_bytes: Mapped[int | None]
    documents: Mapped[int | None] = mapped_column(BigInteger)
    rejected: Mapped[int | None] = mapped_column(BigInteger)
    created: Mapped[datetime] = mapped_column(UtcDateTime, default=now)

    version: Mapped[DatasetVersion] = relationship(back_populates="preparations")


class PreparationSlice(Base):
    """A stretch of one file, worked by one worker at a time."""

    __tablename__ = "preparation_slice"
    __table_args__ = (Index("ix_preparation_slice_preparation_id_done", "preparation_id", "done"),)

    preparation_id: Mapped[UUID] = mapped_column(
        ForeignKey("preparation.id", ondelete="CASCADE"), primary_key=True
    )
    number: Mapped[int] = mapped_column(primary_key=True)
    plan: Mapped[dict[str, Any]] = mapped_column(JSON)
    """A `Slice`."""

    lease: Mapped[UUID | None]
    leased_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    lost_leases: Mapped[int] = mapped_column(default=0)
    """Workers that took it and fell silent."""

    done: Mapped[bool] = mapped_column(default=False)
    result: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    """A `SliceResult`, when done."""


class RejectedLine(Base):
    """A line of an uploaded file that gave no document; the first ones of a preparation."""

    __tablename__ = "rejected_line"

    preparation_id: Mapped[UUID] = mapped_column(
        ForeignKey("preparation.id", ondelete="CASCADE"), primary_key=True
    )
    position: Mapped[int] = mapped_column(primary_key=True)
    file: Mapped[str] = mapped_column(String(255))
    line: Mapped[int] = mapped_column(BigInteger)
    reason: Mapped[str] = mapped_column(String(255))
