"""Table of checkpoints and exports."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import JSON, BigInteger, ForeignKey, Index, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from trainwright.contracts.checkpoint import CheckpointKind
from trainwright_backend.core.db import Base, UtcDateTime
from trainwright_backend.runs.tables import words


class Checkpoint(Base):
    """A checkpoint or an export: announced when its upload starts, visible once it is committed."""

    __tablename__ = "checkpoint"
    __table_args__ = (
        UniqueConstraint("run_id", "fence", "kind", "step"),
        Index("ix_checkpoint_run_id_committed", "run_id", "committed"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True)
    run_id: Mapped[UUID] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"))
    attempt: Mapped[int]
    fence: Mapped[int]
    kind: Mapped[CheckpointKind] = mapped_column(words(CheckpointKind))
    step: Mapped[int]
    prefix: Mapped[str]
    """Its folder in the object store."""
    files: Mapped[list[dict[str, Any]]] = mapped_column(JSON)
    """Name, bytes and digest of each, the manifest included."""
    bytes: Mapped[int] = mapped_column(BigInteger)
    manifest_digest: Mapped[str | None] = mapped_column(String(64))
    created: Mapped[datetime] = mapped_column(UtcDateTime)
    committed: Mapped[datetime | None] = mapped_column(UtcDateTime)
    valid: Mapped[bool]
    """False once a node reported that it does not match its manifest."""
    pinned: Mapped[bool] = mapped_column(default=False)
    """Set by a person who wants to keep it: only people can delete it."""
    links_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    """Expiry of the last link to its files that was given out: a download may be in progress until then."""
    contents: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    """Summary of its manifest: ranks that wrote it, parameters, dtypes, and the step it was resumed from."""
