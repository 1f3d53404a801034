"""Reading points of metrics: all points of a range for streams, and down-sampled ones for charts.

For a wide view of a long series, points are chosen from the coarse copies of its chunks, and only the chunks at
the ends of the window are read completely. Narrower views read all points.
"""

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

import numpy as np
from sqlalchemy import Select, select

from trainwright_backend.core.db import Read
from trainwright_backend.metrics.curves import (
    COARSE_SEGMENT,
    Curve,
    coarse,
    unpacked,
    unpacked_points,
)
from trainwright_backend.metrics.selection import Selection
from trainwright_backend.metrics.tables import MetricSeries
from trainwright_backend.metrics.writing import CHUNK, QUERY_SERIES

FINEST_COARSE = COARSE_SEGMENT
"""Coarse copies are used from this many stored points per requested point."""

ALL_STEPS = 2**62


def series_of(
    session: Read, run_id: UUID, attempt: int | None = None, selection: Selection | None = None
) -> Sequence[MetricSeries]:
    """The run's series, or those of one attempt, by attempt and name; of all names unless some are selected."""
    wanted = select(MetricSeries).where(MetricSeries.run_id == run_id)
    if attempt is not None:
        wanted = wanted.where(MetricSeries.attempt == attempt)
    if selection is not None and not selection.wants_tensors:
        wanted = wanted.where(MetricSeries.name.not_like("%/%"))
    found = session.scalars(wanted.order_by(MetricSeries.attempt, MetricSeries.name)).all()
    return found if selection is None else [item for item in found if item.name in selection]


def read_curves(
    session: Read, series: Iterable[MetricSeries], after: int = -1, last: int = ALL_STEPS
) -> dict[int, Curve]:
    """The points with after < step ≤ last of each series, by its id; one query for a thousand of them."""
    parts: dict[int, list[Any]] = {item.id: [] for item in series}
    ids = list(parts)
    for begin in range(0, len(ids), QUERY_SERIES):
        chunks = _within(_WHOLE, ids[begin : begin + QUERY_SERIES], after, last)
        for row in session.execute(chunks):
            parts[row.series_id].append(row)
    return {series_id: _joined(found).between(after, last) for series_id, found in parts.items()}


def read_shown(session: Read, series: MetricSeries, after: int, last: int, points: int) -> Curve:
    """The same range of one series for a chart: a choice of at least ``points`` points, or all of them."""
    nearest = min(last, series.last_step) - after
    if nearest > FINEST_COARSE * points:
        rows = session.execute(_within(_COARSE, [series.id], after, last)).all()
        if sum(row.n for row in rows) > FINEST_COARSE * points:
            return _far_view(session, series.id, rows, after, last)
    return read_curves(session, [series], after, last)[series.id]


def _far_view(session: Read, series_id: int, rows: Sequence[Any], after: int, last: int) -> Curve:
    """Extremes of segments much shorter than the requested resolution, and the last point."""
    inner = [row for row in rows[:-1] if row.coarse and row.start_step > after and row.end_step <= last]
    taken = {row.start_step for row in inner}
    ends = [row.start_step for row in rows if row.start_step not in taken]
    whole: list[Curve] = []
    for begin in range(0, len(ends), QUERY_SERIES):
        these = (CHUNK.series_id == series_id, CHUNK.start_step.in_(ends[begin : begin + QUERY_SERIES]))
        chunks = select(*_WHOLE).where(*these).order_by(CHUNK.start_step)
        whole += [_unpacked(row) for row in session.execute(chunks)]
    edges = Curve.joined(whole).between(after, last)
    middle = unpacked_points([row.coarse for row in inner])
    chosen = Curve.joined([middle, coarse(edges), edges.part(len(edges) - 1, len(edges))])
    steps, order = np.unique(chosen.steps, return_index=True)
    return Curve(steps, chosen.values[order])


_WHOLE = (CHUNK.series_id, CHUNK.start_step, CHUNK.n, CHUNK.steps, CHUNK["values"])
_COARSE = (CHUNK.start_step, CHUNK.end_step, CHUNK.n, CHUNK.coarse)


def _within(columns: tuple[Any, ...], ids: Sequence[int], after: int, last: int) -> Select[Any]:
    """Chunks that overlap after < step ≤ last."""
    theirs = (CHUNK.series_id.in_(ids), CHUNK.end_step > after, CHUNK.start_step <= last)
    return select(*columns).where(*theirs).order_by(CHUNK.series_id, CHUNK.start_step)


def _joined(rows: Sequence[Any]) -> Curve:
    """Consecutive chunks as one curve; without gaps, the usual case, they are unpacked together."""
    if not rows:
        return Curve.empty()
    first, points = rows[0].start_step, sum(row.n for row in rows)
    gapless = all(row.steps is None for row in rows) and rows[-1].start_step + rows[-1].n - first == points
    if gapless:
        return unpacked(first, points, None, b"".join([row.values for row in rows]))
    return Curve.joined([_unpacked(row) for row in rows])


def _unpacked(row: Any) -> Curve:
    return unpacked(row.start_step, row.n, row.steps, row.values)
