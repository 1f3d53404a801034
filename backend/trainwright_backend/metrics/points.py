"""Points of metrics in the database: append, rewind, read. Knows nothing of runs' states or of HTTP.

Within a series steps only grow, so a point that is not newer than the last one is dropped, as is one that is not
finite (JSON has no word for it, and the run is about to end as diverged).
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

import numpy as np
import numpy.typing as npt
from sqlalchemy import Delete, delete, func, insert, select

from trainwright.contracts.agent_protocol import MetricBlock
from trainwright.contracts.events import SERIES_UNITS
from trainwright_backend.core.db import Read, Write, storable
from trainwright_backend.metrics.names import Selection, is_of_tensor
from trainwright_backend.metrics.tables import MetricChunk, MetricSeries, MetricTail

CHUNK_POINTS = 1_000
CHUNK_POINTS_OF_TENSOR = 100
"""Thousands of series fill their chunks at the same step; what one batch then moves stays small."""

LONGEST_NAME = 80
QUERY_SERIES = 1_000
"""Series in one query; databases bound the number of its parameters."""

STEP = np.dtype("<i8")
VALUE = np.dtype("<f8")

Steps = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """Points of one series, in order of their steps."""

    steps: Steps
    values: Values

    @classmethod
    def empty(cls) -> "Curve":
        return cls(np.empty(0, STEP), np.empty(0, VALUE))

    @classmethod
    def joined(cls, parts: Sequence["Curve"]) -> "Curve":
        if not parts:
            return cls.empty()
        return cls(np.concatenate([p.steps for p in parts]), np.concatenate([p.values for p in parts]))

    def __len__(self) -> int:
        return len(self.steps)

    def between(self, after: int, last: int | None = None) -> "Curve":
        """Points with after < step ≤ last."""
        begin = int(np.searchsorted(self.steps, after, side="right"))
        end = len(self) if last is None else int(np.searchsorted(self.steps, last, side="right"))
        return Curve(self.steps[begin:end], self.values[begin:end])


def append(session: Write, run_id: UUID, attempt: int, blocks: Sequence[MetricBlock]) -> dict[str, Curve]:
    """Add the points of an attempt.

    Returns:
        What was added, by name.
    """
    given = _by_name(blocks)
    known = _series_named(session, run_id, attempt, given)
    added: dict[str, Curve] = {}
    rows: list[dict[str, object]] = []
    full: list[tuple[MetricSeries, Curve]] = []
    for name, curve in given.items():
        series = known[name]
        fresh = _increasing(curve, series.last_step)
        if not len(fresh):
            continue
        added[name] = fresh
        series.last_step = int(fresh.steps[-1])
        if series.tail_points + len(fresh) >= _chunk_points(series):
            full.append((series, fresh))
            continue
        series.tail_points += len(fresh)
        rows += _tail_rows(series.id, fresh)
    for begin in range(0, len(full), QUERY_SERIES):
        rows += _pack(session, full[begin : begin + QUERY_SERIES])
    if rows:
        session.execute(insert(MetricTail.__table__), rows)  # type: ignore[arg-type]
    session.flush()
    return added


def rewind(session: Write, run_id: UUID, step: int) -> None:
    """Forget all points of the run after ``step``; a handful of statements, however many series there are."""
    later = (MetricSeries.run_id == run_id, MetricSeries.last_step > step)
    touched = session.scalars(select(MetricSeries).where(*later)).all()
    if not touched:
        return
    in_chunks = MetricChunk.series_id.in_(select(MetricSeries.id).where(*later))
    in_tails = MetricTail.series_id.in_(select(MetricSeries.id).where(*later))
    _delete(session, delete(MetricTail).where(in_tails, MetricTail.step > step))
    cut = session.scalars(
        select(MetricChunk).where(in_chunks, MetricChunk.start_step <= step, MetricChunk.end_step > step)
    )
    rest = [row for chunk in cut for row in _tail_rows(chunk.series_id, _unpack(chunk).between(-1, step))]
    _delete(session, delete(MetricChunk).where(in_chunks, MetricChunk.end_step > step))
    if rest:
        session.execute(insert(MetricTail.__table__), rest)  # type: ignore[arg-type]
    packed = select(MetricChunk.series_id, func.max(MetricChunk.end_step)).where(in_chunks)
    packed_to = {row[0]: int(row[1]) for row in session.execute(packed.group_by(MetricChunk.series_id))}
    loose = select(MetricTail.series_id, func.max(MetricTail.step), func.count()).where(in_tails)
    loose_to = {row[0]: (row[1], row[2]) for row in session.execute(loose.group_by(MetricTail.series_id))}
    for series in touched:
        last, series.tail_points = loose_to.get(series.id, (0, 0))
        series.last_step = max(last, packed_to.get(series.id, 0))
    session.flush()


def _delete(session: Write, statement: Delete) -> None:
    """Rows that this session does not look at again."""
    session.execute(statement, execution_options={"synchronize_session": False})


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
    return found if selection is None else [one for one in found if one.name in selection]


def read_curves(session: Read, series: Iterable[MetricSeries], after_step: int = -1) -> dict[int, Curve]:
    """The points after ``after_step`` of each series, by its id; two queries for a thousand of them."""
    parts: dict[int, list[Curve]] = {one.id: [] for one in series}
    ids = list(parts)
    for begin in range(0, len(ids), QUERY_SERIES):
        _read_parts(session, ids[begin : begin + QUERY_SERIES], after_step, parts)
    return {series_id: Curve.joined(found).between(after_step) for series_id, found in parts.items()}


def _read_parts(session: Read, ids: list[int], after_step: int, parts: dict[int, list[Curve]]) -> None:
    chunks = select(MetricChunk).where(MetricChunk.series_id.in_(ids), MetricChunk.end_step > after_step)
    for chunk in session.scalars(chunks.order_by(MetricChunk.series_id, MetricChunk.start_step)):
        parts[chunk.series_id].append(_unpack(chunk))
    for series_id, tail in _read_tails(session, ids, after_step).items():
        parts[series_id].append(tail)


def _read_tails(session: Read, ids: list[int], after_step: int = -1) -> dict[int, Curve]:
    tails: dict[int, list[tuple[int, float]]] = {}
    points = select(MetricTail.series_id, MetricTail.step, MetricTail.value)
    points = points.where(MetricTail.series_id.in_(ids), MetricTail.step > after_step)
    for series_id, step, value in session.execute(points.order_by(MetricTail.series_id, MetricTail.step)):
        tails.setdefault(series_id, []).append((step, value))
    columns = {series_id: zip(*rows, strict=True) for series_id, rows in tails.items()}
    return {
        one: Curve(np.array(steps, STEP), np.array(values, VALUE)) for one, (steps, values) in columns.items()
    }


def thinned(curve: Curve, points: int) -> Curve:
    """At most ``points`` of the curve: the least and the greatest of each of ``points`` ÷ 2 equal stretches.

    Every spike stays visible, each point is one that was measured, and the last one is always among them.
    """
    if len(curve) <= points:
        return curve
    borders = np.linspace(0, len(curve) - 1, max(points // 2, 1), dtype=np.int64)[:-1]
    chosen = {len(curve) - 1}
    for begin, end in zip(borders, [*borders[1:], len(curve) - 1], strict=True):
        stretch = curve.values[begin:end]
        if len(stretch):
            chosen.update((int(begin + stretch.argmin()), int(begin + stretch.argmax())))
    order = np.array(sorted(chosen), np.int64)
    return Curve(curve.steps[order], curve.values[order])


def _by_name(blocks: Sequence[MetricBlock]) -> dict[str, Curve]:
    parts: dict[str, list[Curve]] = {}
    for block in blocks:
        steps = np.array(block.steps, STEP)
        for name, values in block.series.items():
            parts.setdefault(storable(name)[:LONGEST_NAME], []).append(Curve(steps, np.array(values, VALUE)))
    return {name: Curve.joined(found) for name, found in parts.items()}


def _increasing(curve: Curve, last_step: int) -> Curve:
    """Without points that are not finite or not newer than all before them."""
    finite = np.isfinite(curve.values)
    steps, values = curve.steps[finite], curve.values[finite]
    before = np.maximum.accumulate(np.concatenate(([last_step], steps)))[:-1]
    newer = steps > before
    return Curve(steps[newer], values[newer])


def _series_named(
    session: Write, run_id: UUID, attempt: int, names: Collection[str]
) -> dict[str, MetricSeries]:
    """The attempt's series of these names; those that are not there yet are made."""
    of_attempt = select(MetricSeries).where(MetricSeries.run_id == run_id, MetricSeries.attempt == attempt)
    wanted = list(names)
    known: dict[str, MetricSeries] = {}
    for begin in range(0, len(wanted), QUERY_SERIES):
        some = of_attempt.where(MetricSeries.name.in_(wanted[begin : begin + QUERY_SERIES]))
        known |= {one.name: one for one in session.scalars(some)}
    made = {name: _new_series(run_id, attempt, name) for name in wanted if name not in known}
    session.add_all(made.values())
    session.flush()
    return known | made


def _new_series(run_id: UUID, attempt: int, name: str) -> MetricSeries:
    unit = SERIES_UNITS.get(name, "")
    return MetricSeries(run_id=run_id, attempt=attempt, name=name, unit=unit, last_step=0, tail_points=0)


def _chunk_points(series: MetricSeries) -> int:
    return CHUNK_POINTS_OF_TENSOR if is_of_tensor(series.name) else CHUNK_POINTS


def _pack(session: Write, full: Sequence[tuple[MetricSeries, Curve]]) -> list[dict[str, object]]:
    """Write the full chunks that tails and fresh points make together; returns the rows of the new tails."""
    ids = [series.id for series, _ in full]
    tails = _read_tails(session, ids)
    _delete(session, delete(MetricTail).where(MetricTail.series_id.in_(ids)))
    chunks: list[dict[str, object]] = []
    rows: list[dict[str, object]] = []
    for series, fresh in full:
        whole = Curve.joined([tails.get(series.id, Curve.empty()), fresh])
        length = _chunk_points(series)
        packed = len(whole) // length * length
        for begin in range(0, packed, length):
            part = np.s_[begin : begin + length]
            chunks.append(_chunk(series.id, Curve(whole.steps[part], whole.values[part])))
        series.tail_points = len(whole) - packed
        rows += _tail_rows(series.id, Curve(whole.steps[packed:], whole.values[packed:]))
    session.execute(insert(MetricChunk.__table__), chunks)  # type: ignore[arg-type]
    return rows


def _chunk(series_id: int, curve: Curve) -> dict[str, object]:
    first, last = int(curve.steps[0]), int(curve.steps[-1])
    consecutive = last - first == len(curve) - 1
    return {
        "series_id": series_id,
        "start_step": first,
        "end_step": last,
        "n": len(curve),
        "steps": None if consecutive else curve.steps.astype(STEP).tobytes(),
        "minimum": float(curve.values.min()),
        "maximum": float(curve.values.max()),
        "total": float(curve.values.sum()),
        "values": curve.values.astype(VALUE).tobytes(),
    }


def _unpack(chunk: MetricChunk) -> Curve:
    if chunk.steps is None:
        steps = np.arange(chunk.start_step, chunk.start_step + chunk.n, dtype=STEP)
    else:
        steps = np.frombuffer(chunk.steps, STEP)
    return Curve(steps, np.frombuffer(chunk.values, VALUE))


def _tail_rows(series_id: int, curve: Curve) -> list[dict[str, object]]:
    pairs = zip(curve.steps.tolist(), curve.values.tolist(), strict=True)
    return [{"series_id": series_id, "step": step, "value": value} for step, value in pairs]
