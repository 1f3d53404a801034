"""Datasets, their immutable versions, and preparations: the tokens of a version for one tokenizer and split.

    stored file ─ parsing ─▶ chunks of documents ─ curation ─▶ version ─ preparation ─▶ token shards

A preparation is processed in chunks, each with its own lease. The rows say what is done; messages only say that there is
work to do. Deleting a dataset deletes all of it, unless a run uses one of its preparations (409, naming the runs).
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

MAX_REJECTED_LISTED = 1_000
"""Rejected rows that are stored of a file, and shown of a version."""


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
    """The person's name at the time of the upload, kept when the account is deleted."""

    last_version: Mapped[int] = mapped_column(default=0)
    """The highest version number ever used, deleted versions included."""

    versions: Mapped[list["DatasetVersion"]] = relationship(
        order_by="DatasetVersion.number.desc()", passive_deletes=True, back_populates="dataset"
    )


class DatasetVersion(Base):
    """Files, or a mixture of other versions, and a curation; none of them ever changes."""

    __tablename__ = "dataset_version"
    __table_args__ = (UniqueConstraint("dataset_id", "number"),)

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    dataset_id: Mapped[UUID] = mapped_column(ForeignKey("dataset.id", ondelete="CASCADE"))
    number: Mapped[int]
    created: Mapped[datetime] = mapped_column(UtcDateTime, default=now)
    bytes: Mapped[int] = mapped_column(BigInteger)
    digest: Mapped[str] = mapped_column(String(64))
    """SHA-256 over the names and digests of the files in order, or over the ids of the mixed versions."""

    curation: Mapped[dict[str, Any]] = mapped_column(JSON)
    """A `CurationSpec`."""

    changes: Mapped[list[str]] = mapped_column(JSON)
    state: Mapped[str] = mapped_column(String(16), index=True)
    """A `VersionState`."""

    error: Mapped[str | None]
    failures: Mapped[int] = mapped_column(default=0)
    lease: Mapped[UUID | None]
    """The curation job that runs now."""

    leased_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    last_activity: Mapped[datetime] = mapped_column(UtcDateTime, default=now)
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
    parsed_file_id: Mapped[UUID | None] = mapped_column(
        ForeignKey("parsed_file.id", ondelete="RESTRICT"), index=True
    )
    """Empty in versions of older releases until they are parsed."""

    stored_file: Mapped[StoredFile] = relationship()
    parsed_file: Mapped["ParsedFile | None"] = relationship()


class MixedVersion(Base):
    """A version that is mixed into another version."""

    __tablename__ = "mixed_version"

    version_id: Mapped[UUID] = mapped_column(
        ForeignKey("dataset_version.id", ondelete="CASCADE"), primary_key=True
    )
    position: Mapped[int] = mapped_column(primary_key=True)
    source_id: Mapped[UUID] = mapped_column(ForeignKey("dataset_version.id", ondelete="RESTRICT"), index=True)
    weight: Mapped[float]


class ParsedFile(Base):
    """A stored file that is parsed into documents with one `ReadSpec`; versions with the same file and settings share it.

    One worker at a time parses it and writes one chunk after the other: a killed worker loses its current chunk.
    """

    __tablename__ = "parsed_file"
    __table_args__ = (UniqueConstraint("stored_file_id", "digest"),)

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    team_id: Mapped[UUID] = mapped_column(ForeignKey(Team.id, ondelete="CASCADE"), index=True)
    stored_file_id: Mapped[UUID] = mapped_column(ForeignKey("stored_file.id", ondelete="RESTRICT"))
    digest: Mapped[str] = mapped_column(String(64))
    """Digest of the `ReadSpec`, the file's extensions and the format of chunks."""

    read: Mapped[dict[str, Any]] = mapped_column(JSON)
    """A `ReadSpec`."""

    state: Mapped[str] = mapped_column(String(16), index=True)
    """A `VersionState`."""

    error: Mapped[str | None]
    failures: Mapped[int] = mapped_column(default=0)
    expired_leases: Mapped[int] = mapped_column(default=0)
    lease: Mapped[UUID | None]
    leased_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    last_activity: Mapped[datetime] = mapped_column(UtcDateTime, default=now)
    format: Mapped[str | None] = mapped_column(String(16))
    compression: Mapped[str | None] = mapped_column(String(16))
    read_bytes: Mapped[int] = mapped_column(BigInteger, default=0)
    """Bytes of the stored file that were read."""

    position: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    """Where the next chunk starts; a `prepare.rows.Position`."""

    documents: Mapped[int] = mapped_column(BigInteger, default=0)
    characters: Mapped[int] = mapped_column(BigInteger, default=0)
    rejected: Mapped[int] = mapped_column(BigInteger, default=0)


class FileChunk(Base):
    """A chunk of a parsed file: one object of documents in the store."""

    __tablename__ = "file_chunk"

    parsed_file_id: Mapped[UUID] = mapped_column(
        ForeignKey("parsed_file.id", ondelete="CASCADE"), primary_key=True
    )
    number: Mapped[int] = mapped_column(primary_key=True)
    documents: Mapped[int]
    characters: Mapped[int] = mapped_column(BigInteger)
    bytes: Mapped[int] = mapped_column(BigInteger)
    digest: Mapped[str] = mapped_column(String(64))


class VersionChunk(Base):
    """A chunk as a version uses it, in the version's order."""

    __tablename__ = "version_chunk"
    __table_args__ = (
        ForeignKeyConstraint(
            ["parsed_file_id", "chunk_number"],
            ["file_chunk.parsed_file_id", "file_chunk.number"],
            ondelete="RESTRICT",
        ),
        Index("ix_version_chunk_parsed_file_id_chunk_number", "parsed_file_id", "chunk_number"),
    )

    version_id: Mapped[UUID] = mapped_column(
        ForeignKey("dataset_version.id", ondelete="CASCADE"), primary_key=True
    )
    number: Mapped[int] = mapped_column(primary_key=True)
    parsed_file_id: Mapped[UUID]
    chunk_number: Mapped[int]
    first_document: Mapped[int] = mapped_column(BigInteger)
    """Number of the chunk's first document within the version."""

    documents: Mapped[int]
    kept_documents: Mapped[int]
    """Documents that the curation keeps."""


class Preparation(Base):
    """The tokens of a version for one tokenizer and split."""

    __tablename__ = "preparation"
    __table_args__ = (UniqueConstraint("version_id", "digest"),)

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    team_id: Mapped[UUID] = mapped_column(ForeignKey(Team.id, ondelete="CASCADE"), index=True)
    version_id: Mapped[UUID] = mapped_column(ForeignKey("dataset_version.id", ondelete="CASCADE"))
    digest: Mapped[str] = mapped_column(String(64))
    """Digest of its input: version, tokenizer, split and format. The folder of its objects has this name."""

    tokenizer: Mapped[dict[str, Any]] = mapped_column(JSON)
    validation_fraction: Mapped[float]
    state: Mapped[str] = mapped_column(String(16), index=True)
    """A `PreparationState`."""

    error: Mapped[str | None]
    """Why it failed, and what to do about it."""

    failures: Mapped[int] = mapped_column(default=0)
    """Errors since the last finished job; the third marks it as failed."""

    retryable: Mapped[bool] = mapped_column(default=False)
    """It failed for a reason other than its data, so the next submission restarts it."""

    lease: Mapped[UUID | None]
    """The job that plans or completes it now."""

    leased_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    last_activity: Mapped[datetime] = mapped_column(UtcDateTime, default=now)
    """The last progress, or the last time that messages were sent for it."""

    shards_done: Mapped[int] = mapped_column(default=0)
    tokens_done: Mapped[int] = mapped_column(BigInteger, default=0)
    shards_total: Mapped[int | None]
    manifest: Mapped[dict[str, Any] | None] = mapped_column(JSON, deferred=True)
    """A `ShardManifest`, when ready. It is long for large data, so it is loaded only on access."""

    train_tokens: Mapped[int | None] = mapped_column(BigInteger)
    """From the manifest, when ready; so are the next two."""

    validation_tokens: Mapped[int | None] = mapped_column(BigInteger)
    validation_from_tail: Mapped[bool] = mapped_column(default=False)

    manifest_digest: Mapped[str | None] = mapped_column(String(64))
    manifest_bytes: Mapped[int | None]
    stored_bytes: Mapped[int] = mapped_column(BigInteger, default=0)
    """Shards and manifest, when ready."""

    tokenizer_bytes: Mapped[int | None]
    documents: Mapped[int | None] = mapped_column(BigInteger)
    lengths: Mapped[list[Any]] = mapped_column(JSON)
    """Histogram of the documents' lengths in tokens: a list of `[upto, documents]`."""

    created: Mapped[datetime] = mapped_column(UtcDateTime, default=now)

    version: Mapped[DatasetVersion] = relationship(back_populates="preparations")


class PreparationChunk(Base):
    """A chunk of the version that one worker at a time tokenizes; its number is that of the version's chunk."""

    __tablename__ = "preparation_chunk"
    __table_args__ = (Index("ix_preparation_chunk_preparation_id_done", "preparation_id", "done"),)

    preparation_id: Mapped[UUID] = mapped_column(
        ForeignKey("preparation.id", ondelete="CASCADE"), primary_key=True
    )
    number: Mapped[int] = mapped_column(primary_key=True)
    lease: Mapped[UUID | None]
    leased_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    expired_leases: Mapped[int] = mapped_column(default=0)
    """Workers that took it and did not finish."""

    done: Mapped[bool] = mapped_column(default=False)
    result: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    """A `ChunkShards`, when done."""


class RejectedLine(Base):
    """A rejected line or row. Only the first ones of a parsed file are stored."""

    __tablename__ = "rejected_line"

    parsed_file_id: Mapped[UUID] = mapped_column(
        ForeignKey("parsed_file.id", ondelete="CASCADE"), primary_key=True
    )
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
