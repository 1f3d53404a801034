"""Datasets, their immutable versions, and preparations: the tokens of a version for one tokenizer and split.

    stored file ─ reading ─▶ pieces of documents ─ survey by the recipe ─▶ version ─ preparation ─▶ shards of tokens

A preparation is worked in slices, each under a lease of its own; the rows say what is done, messages only say that
there is something to do. Everything goes with its dataset; a preparation that a run uses cannot (409 naming the runs).
"""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import JSON, BigInteger, ForeignKey, ForeignKeyConstraint, Index, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column, relationship

from trainwright_backend.auth.tables import Account, Team
from trainwright_backend.core.db import Base, UtcDateTime, now
from trainwright_backend.core.ids import new_id
from trainwright_backend.uploads.tables import StoredFile


class Dataset(Base):
    """Text that a team uploaded, under one name."""

    __tablename__ = "dataset"
    __table_args__ = (Index("ix_dataset_team_id_id", "team_id", "id"),)

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    team_id: Mapped[UUID] = mapped_column(ForeignKey(Team.id, ondelete="CASCADE"))
    name: Mapped[str] = mapped_column(String(80))
    created: Mapped[datetime] = mapped_column(UtcDateTime, default=now)
    created_by: Mapped[UUID | None] = mapped_column(ForeignKey(Account.id, ondelete="SET NULL"), index=True)
    created_by_name: Mapped[str] = mapped_column(String(80))
    """Name of the person at the upload, which outlives the account."""

    last_version: Mapped[int] = mapped_column(default=0)
    """Highest number that was ever given to a version, also to one that is deleted."""

    versions: Mapped[list["DatasetVersion"]] = relationship(
        order_by="DatasetVersion.number.desc()", passive_deletes=True, back_populates="dataset"
    )


class DatasetVersion(Base):
    """Files, or a mixture of other versions, and a recipe; none of them ever changes."""

    __tablename__ = "dataset_version"
    __table_args__ = (UniqueConstraint("dataset_id", "number"),)

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    dataset_id: Mapped[UUID] = mapped_column(ForeignKey("dataset.id", ondelete="CASCADE"))
    number: Mapped[int]
    created: Mapped[datetime] = mapped_column(UtcDateTime, default=now)
    bytes: Mapped[int] = mapped_column(BigInteger)
    digest: Mapped[str] = mapped_column(String(64))
    """SHA-256 over names and digests of the files, in order, or over the mixed versions' ids."""

    recipe: Mapped[dict[str, Any]] = mapped_column(JSON)
    """A `Recipe`."""

    changes: Mapped[list[str]] = mapped_column(JSON)
    state: Mapped[str] = mapped_column(String(16), index=True)
    """A `VersionState`."""

    error: Mapped[str | None]
    failures: Mapped[int] = mapped_column(default=0)
    lease: Mapped[UUID | None]
    """Who surveys it now."""

    leased_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    touched: Mapped[datetime] = mapped_column(UtcDateTime, default=now)
    statistics: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    """`Statistics`, when ready."""

    dataset: Mapped[Dataset] = relationship(back_populates="versions")
    files: Mapped[list["DatasetFile"]] = relationship(order_by="DatasetFile.position", passive_deletes=True)
    sources: Mapped[list["MixedVersion"]] = relationship(
        order_by="MixedVersion.position", passive_deletes=True, foreign_keys="MixedVersion.version_id"
    )
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
    stored_file_id: Mapped[UUID] = mapped_column(
        ForeignKey("stored_file.id", ondelete="RESTRICT"), index=True
    )
    reading_id: Mapped[UUID | None] = mapped_column(ForeignKey("reading.id", ondelete="RESTRICT"), index=True)
    """Empty for versions of older releases, until they are read."""

    stored_file: Mapped[StoredFile] = relationship()
    reading: Mapped["Reading | None"] = relationship()


class MixedVersion(Base):
    """A version that is mixed into another one."""

    __tablename__ = "mixed_version"

    version_id: Mapped[UUID] = mapped_column(
        ForeignKey("dataset_version.id", ondelete="CASCADE"), primary_key=True
    )
    position: Mapped[int] = mapped_column(primary_key=True)
    source_id: Mapped[UUID] = mapped_column(ForeignKey("dataset_version.id", ondelete="RESTRICT"), index=True)
    weight: Mapped[float]


class Reading(Base):
    """A stored file read into documents in one way; versions with the same file and way share it.

    It is worked by one worker at a time, which writes piece after piece: a killed one loses the piece in hand.
    """

    __tablename__ = "reading"
    __table_args__ = (UniqueConstraint("stored_file_id", "digest"),)

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    team_id: Mapped[UUID] = mapped_column(ForeignKey(Team.id, ondelete="CASCADE"), index=True)
    stored_file_id: Mapped[UUID] = mapped_column(ForeignKey("stored_file.id", ondelete="RESTRICT"))
    digest: Mapped[str] = mapped_column(String(64))
    """Names how it is read: the `ReadSpec` and the format of pieces."""

    read: Mapped[dict[str, Any]] = mapped_column(JSON)
    """A `ReadSpec`."""

    state: Mapped[str] = mapped_column(String(16), index=True)
    """A `VersionState`."""

    error: Mapped[str | None]
    failures: Mapped[int] = mapped_column(default=0)
    lost_leases: Mapped[int] = mapped_column(default=0)
    lease: Mapped[UUID | None]
    leased_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    touched: Mapped[datetime] = mapped_column(UtcDateTime, default=now)
    format: Mapped[str | None] = mapped_column(String(16))
    compression: Mapped[str | None] = mapped_column(String(16))
    read_bytes: Mapped[int] = mapped_column(BigInteger, default=0)
    """Of the stored file."""

    position: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    """Where the next piece begins; a `prepare.reading.Position`."""

    documents: Mapped[int] = mapped_column(BigInteger, default=0)
    characters: Mapped[int] = mapped_column(BigInteger, default=0)
    rejected: Mapped[int] = mapped_column(BigInteger, default=0)


class Piece(Base):
    """A stretch of a reading: one file of documents in the object store."""

    __tablename__ = "piece"

    reading_id: Mapped[UUID] = mapped_column(ForeignKey("reading.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    documents: Mapped[int]
    characters: Mapped[int] = mapped_column(BigInteger)
    bytes: Mapped[int] = mapped_column(BigInteger)
    digest: Mapped[str] = mapped_column(String(64))


class VersionPiece(Base):
    """A piece as a version uses it, in the version's order, with how many of its documents the recipe keeps."""

    __tablename__ = "version_piece"
    __table_args__ = (
        ForeignKeyConstraint(
            ["reading_id", "piece_number"], ["piece.reading_id", "piece.number"], ondelete="RESTRICT"
        ),
        Index("ix_version_piece_reading_id_piece_number", "reading_id", "piece_number"),
    )

    version_id: Mapped[UUID] = mapped_column(
        ForeignKey("dataset_version.id", ondelete="CASCADE"), primary_key=True
    )
    number: Mapped[int] = mapped_column(primary_key=True)
    reading_id: Mapped[UUID]
    piece_number: Mapped[int]
    first_document: Mapped[int] = mapped_column(BigInteger)
    """Number, within the version, of the piece's first document."""

    documents: Mapped[int]
    kept: Mapped[int]


class Preparation(Base):
    """The tokens of a version for one tokenizer and split."""

    __tablename__ = "preparation"
    __table_args__ = (UniqueConstraint("version_id", "digest"),)

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    team_id: Mapped[UUID] = mapped_column(ForeignKey(Team.id, ondelete="CASCADE"), index=True)
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
    tokens_done: Mapped[int] = mapped_column(BigInteger, default=0)
    shards_total: Mapped[int | None]
    manifest: Mapped[dict[str, Any] | None] = mapped_column(JSON, deferred=True)
    """A `ShardManifest`, when ready; of large data it is long, so it is loaded when it is asked for."""

    train_tokens: Mapped[int | None] = mapped_column(BigInteger)
    """Of the manifest, when ready; so the next two."""

    validation_tokens: Mapped[int | None] = mapped_column(BigInteger)
    validation_from_tail: Mapped[bool] = mapped_column(default=False)

    manifest_digest: Mapped[str | None] = mapped_column(String(64))
    manifest_bytes: Mapped[int | None]
    tokenizer_bytes: Mapped[int | None]
    documents: Mapped[int | None] = mapped_column(BigInteger)
    lengths: Mapped[list[Any]] = mapped_column(JSON)
    """Histogram of the documents' lengths in tokens, `[upto, documents]` each."""

    created: Mapped[datetime] = mapped_column(UtcDateTime, default=now)

    version: Mapped[DatasetVersion] = relationship(back_populates="preparations")


class PreparationSlice(Base):
    """One piece of the version, worked by one worker at a time; its number is the piece's in the version."""

    __tablename__ = "preparation_slice"
    __table_args__ = (Index("ix_preparation_slice_preparation_id_done", "preparation_id", "done"),)

    preparation_id: Mapped[UUID] = mapped_column(
        ForeignKey("preparation.id", ondelete="CASCADE"), primary_key=True
    )
    number: Mapped[int] = mapped_column(primary_key=True)
    plan: Mapped[dict[str, Any]] = mapped_column(JSON)
    """What there is to do: how many documents are kept."""

    lease: Mapped[UUID | None]
    leased_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    lost_leases: Mapped[int] = mapped_column(default=0)
    """Workers that took it and fell silent."""

    done: Mapped[bool] = mapped_column(default=False)
    result: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    """A `SliceResult`, when done."""


class RejectedLine(Base):
    """A line or row that gave no document; the first ones of a reading."""

    __tablename__ = "rejected_line"

    reading_id: Mapped[UUID] = mapped_column(ForeignKey("reading.id", ondelete="CASCADE"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    line: Mapped[int] = mapped_column(BigInteger)
    reason: Mapped[str] = mapped_column(String(255))


class UploadedTokenizer(Base):
    """A `tokenizer.json` that the team uploaded."""

    __tablename__ = "tokenizer"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    team_id: Mapped[UUID] = mapped_column(ForeignKey(Team.id, ondelete="CASCADE"), index=True)
    name: Mapped[str] = mapped_column(String(80))
    stored_file_id: Mapped[UUID] = mapped_column(
        ForeignKey("stored_file.id", ondelete="RESTRICT"), index=True
    )
    vocabulary: Mapped[int]
    end_of_text: Mapped[str] = mapped_column(String(80))
    created: Mapped[datetime] = mapped_column(UtcDateTime, default=now)
    created_by: Mapped[UUID | None] = mapped_column(ForeignKey(Account.id, ondelete="SET NULL"), index=True)
    created_by_name: Mapped[str] = mapped_column(String(80))

    stored_file: Mapped[StoredFile] = relationship()
