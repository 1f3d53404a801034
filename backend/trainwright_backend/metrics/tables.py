"""Tables of metrics: chunks of points as blobs, marks for live streams, and samples of text.

A million plain rows are slow to read as a curve (400 ms against 3 ms, measured), and every row costs an index
entry, so a series is stored in chunks. A batch adds one short chunk per series. Once the short chunks have
1,000 points, or 100 for a tensor's series, which are many, they are packed into one.
"""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import JSON, BigInteger, ForeignKey, LargeBinary, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from trainwright_backend.core.db import Base, UtcDateTime


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
    """0 if the series has no point."""
    packed_step: Mapped[int] = mapped_column(BigInteger)
    """Chunks that start after it are short ones."""
    tail_points: Mapped[int]
    """Points in the short chunks."""


class MetricChunk(Base):
    """Consecutive points of a series; steps increase within a chunk and from one to the next.

    The order of the columns matters: SQLite reads the columns before the large ones without reading those.
    """

    __tablename__ = "metric_chunk"

    series_id: Mapped[int] = mapped_column(
        ForeignKey("metric_series.id", ondelete="CASCADE"), primary_key=True
    )
    start_step: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    end_step: Mapped[int] = mapped_column(BigInteger)
    n: Mapped[int]
    coarse: Mapped[bytes | None] = mapped_column(LargeBinary)
    """Extremes of a packed chunk, as pairs of int64 and float64, little-endian; see `curves.coarse`."""
    steps: Mapped[bytes | None] = mapped_column(LargeBinary)
    """int64, little-endian; empty when the steps are consecutive."""
    values: Mapped[bytes] = mapped_column(LargeBinary)
    """float64, little-endian."""


class MetricMark(Base):
    """The last step of each series when the events up to ``offset`` were stored, from which a live stream continues.

    Only the newest marks of a run are kept; a stream that was disconnected for longer starts again.
    """

    __tablename__ = "metric_mark"
    __table_args__ = (UniqueConstraint("run_id", "attempt", "offset"),)

    run_id: Mapped[UUID] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    attempt: Mapped[int]
    offset: Mapped[int] = mapped_column(BigInteger)
    last_steps: Mapped[dict[str, Any]] = mapped_column(JSON)
    """Last step of the attempt's series, by name; families have one entry each."""


class RunSample(Base):
    """Text that a run's model generated from its prompts at one validation. When a later attempt resumes at a step, the rows
    after that step are removed."""

    __tablename__ = "run_sample"

    run_id: Mapped[UUID] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)
    step: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    attempt: Mapped[int]
    time: Mapped[datetime] = mapped_column(UtcDateTime)
    samples: Mapped[list[dict[str, str]]] = mapped_column(JSON)
    """`Sample`s, in the order of the prompts."""
