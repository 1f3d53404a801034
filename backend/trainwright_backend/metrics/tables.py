"""Tables of metrics: stretches of points as blobs, and marks for those who follow live.

A million plain rows are slow to read as a curve (400 ms against 3 ms, measured) and a row for every point costs an
index entry, so a series is stored in chunks. A batch adds one short chunk a series; once they hold 1,000 points, and
those of a tensor, which has thousands of siblings, 100, they are packed into one.
"""

from typing import Any
from uuid import UUID

from sqlalchemy import JSON, BigInteger, ForeignKey, LargeBinary, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from trainwright_backend.core.db import Base


class MetricSeries(Base):
    """One metric of one attempt. Points after a later attempt's resume point are removed."""

    __tablename__ = "metric_series"
    __table_args__ = (UniqueConstraint("run_id", "attempt", "name"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[UUID] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"))
    attempt: Mapped[int]
    name: Mapped[str] = mapped_column(String(80))
    unit: Mapped[str] = mapped_column(String(20))
    last_step: Mapped[int] = mapped_column(BigInteger)
    """0 when it has no point."""
    packed_step: Mapped[int] = mapped_column(BigInteger)
    """Chunks that begin after it are short ones."""
    tail_points: Mapped[int]
    """In the short chunks."""


class MetricChunk(Base):
    """A stretch of a series; steps only grow, within it and from one to the next.

    The order of the columns matters: SQLite finds those before the large ones without reading these.
    """

    __tablename__ = "metric_chunk"

    series_id: Mapped[int] = mapped_column(
        ForeignKey("metric_series.id", ondelete="CASCADE"), primary_key=True
    )
    start_step: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    end_step: Mapped[int] = mapped_column(BigInteger)
    n: Mapped[int]
    coarse: Mapped[bytes | None] = mapped_column(LargeBinary)
    """Of a packed one: pairs of int64 and float64, little-endian, of its extremes; see `curves.coarse`."""
    steps: Mapped[bytes | None] = mapped_column(LargeBinary)
    """int64, little-endian; empty when the steps are consecutive."""
    values: Mapped[bytes] = mapped_column(LargeBinary)
    """float64, little-endian."""


class MetricMark(Base):
    """How far each series was when the events up to ``offset`` were stored: where a live stream goes on from.

    Only the newest marks of a run are kept; a stream that was away for longer begins anew.
    """

    __tablename__ = "metric_mark"
    __table_args__ = (UniqueConstraint("run_id", "attempt", "offset"),)

    run_id: Mapped[UUID] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    attempt: Mapped[int]
    offset: Mapped[int] = mapped_column(BigInteger)
    last_steps: Mapped[dict[str, Any]] = mapped_column(JSON)
    """Last step by name, of the attempt's series; those of tensors have one entry a family."""
