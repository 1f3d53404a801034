"""Writing points of metrics: append and rewind. This module does not depend on runs' states or on HTTP.

Within a series steps increase, so a point that is not newer than the last one is dropped. So is one that is not
finite: JSON cannot represent it, and the run is about to end as diverged. A call executes a handful of
statements for any number of series.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np
from sqlalchemy import Table, bindparam, delete, func, insert, select

from trainwright.contracts.agent_protocol import MetricBlock
from trainwright.contracts.series import current_name, unit_of
from trainwright_backend.core.db import Base, Write, storable
from trainwright_backend.metrics.curves import (
    STEP,
    VALUE,
    Curve,
    coarse,
    increasing,
    packed_points,
    packed_steps,
    packed_values,
    unpacked,
)
from trainwright_backend.metrics.selection import is_of_tensor
from trainwright_backend.metrics.tables import MetricChunk, MetricSeries

CHUNK_POINTS = 1_000
CHUNK_POINTS_OF_TENSOR = 100
"""Thousands of series fill their chunks at the same step; short chunks keep the amount that one batch rewrites
small."""

MAX_NAME_LENGTH = 80
QUERY_SERIES = 1_000
"""Series in one query; databases limit the number of parameters."""

SERIES_TABLE: Table = Base.metadata.tables["metric_series"]
CHUNK_TABLE: Table = Base.metadata.tables["metric_chunk"]
SERIES, CHUNK = SERIES_TABLE.c, CHUNK_TABLE.c


@dataclass
class _Series:
    """A row of `MetricSeries` in memory."""

    id: int
    run_id: UUID
    attempt: int
    name: str
    unit: str
    last_step: int
    packed_step: int
    tail_points: int

    @property
    def chunk_points(self) -> int:
        return CHUNK_POINTS_OF_TENSOR if is_of_tensor(self.name) else CHUNK_POINTS


def append(session: Write, run_id: UUID, attempt: int, blocks: Sequence[MetricBlock]) -> dict[str, Curve]:
    """Add the points of an attempt.

    Returns:
        The added points, by name.
    """
    given = _by_name(blocks)
    known = _series_named(session, run_id, attempt, given)
    added: dict[str, Curve] = {}
    chunks: list[dict[str, object]] = []
    full: list[tuple[_Series, Curve]] = []
    for name, curve in given.items():
        series = known[name]
        fresh = increasing(curve, series.last_step)
        if not len(fresh):
            continue
        added[name] = fresh
        series.last_step = int(fresh.steps[-1])
        if series.tail_points + len(fresh) >= series.chunk_points:
            full.append((series, fresh))
            continue
        series.tail_points += len(fresh)
        chunks.append(_chunk(series.id, fresh, packed=False))
    for begin in range(0, len(full), QUERY_SERIES):
        chunks += _pack(session, full[begin : begin + QUERY_SERIES])
    _write(session, [known[name] for name in added], chunks)
    return added


def rewind(session: Write, run_id: UUID, step: int) -> None:
    """Delete all points of the run after ``step``."""
    later = (SERIES.run_id == run_id, SERIES.last_step > step)
    touched = {row.id: row for row in _rows(session, *later)}
    if not touched:
        return
    theirs = CHUNK.series_id.in_(select(SERIES.id).where(*later))
    cut = select(CHUNK.series_id, CHUNK.start_step, CHUNK.n, CHUNK.steps, CHUNK["values"])
    cut = cut.where(theirs, CHUNK.start_step <= step, CHUNK.end_step > step)
    rest = {row.series_id: _unpacked(row).between(-1, step) for row in session.execute(cut)}
    session.execute(delete(CHUNK_TABLE).where(theirs, CHUNK.end_step > step))
    for series in touched.values():
        begins = int(rest[series.id].steps[0]) if series.id in rest else step + 1
        series.packed_step = min(series.packed_step, begins - 1)
    chunks = [_chunk(series_id, curve, packed=False) for series_id, curve in rest.items()]
    _write(session, list(touched.values()), chunks)
    _count_again(session, touched, theirs)


def _count_again(session: Write, touched: dict[int, _Series], theirs: Any) -> None:
    """Set last step and number of points in short chunks from what is left."""
    loose = func.sum(CHUNK.n).filter(CHUNK.start_step > SERIES.packed_step)
    left = select(CHUNK.series_id, func.max(CHUNK.end_step), loose).join_from(
        MetricChunk, MetricSeries, CHUNK.series_id == SERIES.id
    )
    for series in touched.values():
        series.last_step = series.tail_points = 0
    for series_id, last_step, points in session.execute(left.where(theirs).group_by(CHUNK.series_id)):
        touched[series_id].last_step, touched[series_id].tail_points = int(last_step), int(points or 0)
    _write(session, list(touched.values()), [])


def _by_name(blocks: Sequence[MetricBlock]) -> dict[str, Curve]:
    parts: dict[str, list[Curve]] = {}
    for block in blocks:
        steps = np.array(block.steps, STEP)
        for name, values in block.series.items():
            parts.setdefault(current_name(storable(name)[:MAX_NAME_LENGTH]), []).append(
                Curve(steps, np.array(values, VALUE))
            )
    return {name: Curve.joined(found) for name, found in parts.items()}


def _series_named(session: Write, run_id: UUID, attempt: int, names: Collection[str]) -> dict[str, _Series]:
    """The attempt's series with these names; missing ones are created."""
    of_attempt = (SERIES.run_id == run_id, SERIES.attempt == attempt)
    wanted = list(names)
    known: dict[str, _Series] = {}
    for _ in ("find", "find what was made"):
        missing = [name for name in wanted if name not in known]
        for begin in range(0, len(missing), QUERY_SERIES):
            some = SERIES.name.in_(missing[begin : begin + QUERY_SERIES])
            known |= {row.name: row for row in _rows(session, *of_attempt, some)}
        new = [_new_series(run_id, attempt, name) for name in missing if name not in known]
        if not new:
            break
        session.execute(insert(SERIES_TABLE), new)
    return known


def _new_series(run_id: UUID, attempt: int, name: str) -> dict[str, object]:
    counts = {"last_step": 0, "packed_step": 0, "tail_points": 0}
    return {"run_id": run_id, "attempt": attempt, "name": name, "unit": unit_of(name), **counts}


def _rows(session: Write, *which: Any) -> list[_Series]:
    found = select(SERIES_TABLE).where(*which).order_by(SERIES.id)
    return [_Series(**row) for row in session.execute(found).mappings()]


def _pack(session: Write, full: Sequence[tuple[_Series, Curve]]) -> list[dict[str, object]]:
    """Merge short chunks and new points into full chunks; the rest becomes a short chunk again."""
    tails = _take_tails(session, [series for series, _ in full])
    chunks: list[dict[str, object]] = []
    for series, fresh in full:
        whole = Curve.joined([*tails.get(series.id, []), fresh])
        length = series.chunk_points
        packed = len(whole) // length * length
        parts = [whole.part(begin, begin + length) for begin in range(0, packed, length)]
        chunks += [_chunk(series.id, part, packed=True) for part in parts]
        series.packed_step = int(whole.steps[packed - 1])
        series.tail_points = len(whole) - packed
        if series.tail_points:
            chunks.append(_chunk(series.id, whole.part(packed, len(whole)), packed=False))
    return chunks


def _take_tails(session: Write, series: Sequence[_Series]) -> dict[int, list[Curve]]:
    """Delete the short chunks of these series and return their points."""
    short = (
        select(CHUNK.series_id, CHUNK.start_step, CHUNK.n, CHUNK.steps, CHUNK["values"])
        .join_from(MetricSeries, MetricChunk, CHUNK.series_id == SERIES.id)
        .where(SERIES.id.in_([item.id for item in series]), CHUNK.start_step > SERIES.packed_step)
        .order_by(CHUNK.series_id, CHUNK.start_step)
    )
    tails: dict[int, list[Curve]] = {}
    for row in session.execute(short):
        tails.setdefault(row.series_id, []).append(_unpacked(row))
    short_of_one = (CHUNK.series_id == bindparam("one"), CHUNK.start_step > bindparam("packed"))
    these = [{"one": item.id, "packed": item.packed_step} for item in series if item.id in tails]
    if these:
        session.connection().execute(delete(CHUNK_TABLE).where(*short_of_one), these)
    return tails


def _chunk(series_id: int, curve: Curve, *, packed: bool) -> dict[str, object]:
    return {
        "series_id": series_id,
        "start_step": int(curve.steps[0]),
        "end_step": int(curve.steps[-1]),
        "n": len(curve),
        "coarse": packed_points(coarse(curve)) if packed else None,
        "steps": packed_steps(curve),
        "values": packed_values(curve),
    }


def _unpacked(row: Any) -> Curve:
    return unpacked(row.start_step, row.n, row.steps, row.values)


def _write(session: Write, series: Sequence[_Series], chunks: list[dict[str, object]]) -> None:
    """Write many rows with one statement: writing them one by one takes longer than the rest of a batch."""
    if series:
        upsert = session.insert(SERIES_TABLE)
        counts = {name: upsert.excluded[name] for name in ("last_step", "packed_step", "tail_points")}
        upsert = upsert.on_conflict_do_update(index_elements=["id"], set_=counts)
        session.execute(upsert.returning(SERIES.id), [vars(item) for item in series])
    if chunks:
        session.execute(insert(MetricChunk).returning(MetricChunk.series_id), chunks)
