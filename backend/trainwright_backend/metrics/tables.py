"""Tables of metrics: finished stretches as blobs, the newest points as rows, and marks for those who follow live.

A million plain rows are slow to read as a curve (400 ms against 3 ms, measured) and a row for every point costs an
index entry, so a series is stored as chunks of 1,000 points, and that of a tensor, which has thousands of siblings, of 100. The points of the last unfinished chunk are rows.
"""

from typing import Any
from uuid import UUID

from sqlalchemy import JSON, BigInteger, Float, ForeignKey, LargeBinary, String, UniqueConstraint
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
    tail_points: Mapped[int]


class MetricChunk(Base):
    """A full stretch of a series. What a rewind leaves of a cut chunk goes back to the tail."""

    __tablename__ = "metric_chunk"

    series_id: Mapped[int] = mapped_column(
        ForeignKey("metric_series.id", ondelete="CASCADE"), primary_key=True
    )
    start_step: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    end_step: Mapped[int] = mapped_column(BigInteger)
    n: Mapped[int]
    steps: Mapped[bytes | None] = mapped_column(LargeBinary)
    """int64, little-endian; empty when the steps are consecutive."""
    minimum: Mapped[float] = mapped_column(Float(53))
    maximum: Mapped[float] = mapped_column(Float(53))
    total: Mapped[float] = mapped_column(Float(53))
    values: Mapped[bytes] = mapped_column(LargeBinary)
    """float64, little-endian."""


class MetricTail(Base):
    """A point that is not in a chunk yet."""

    __tablename__ = "metric_tail"
    __table_args__ = ({"sqlite_with_rowid": False},)

    series_id: Mapped[int] = mapped_column(
        ForeignKey("metric_series.id", ondelete="CASCADE"), primary_key=True
    )
    step: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    value: Mapped[float] = mapped_column(Float(53))


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
