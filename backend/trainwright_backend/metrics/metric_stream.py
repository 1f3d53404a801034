"""A run's points as they arrive, for streams.

A reader has a cursor: it has read all points of earlier attempts, and those of its current attempt up to a step of each
series. New points are read a page at a time, so a long run is never completely in memory. If points that were read have
been removed in the meantime, the reader first tells the client to discard them. The stored points decide that, not the
step at which an attempt was expected to resume, since an attempt that ended before its start removed nothing.

Every message has the id of the cursor after it, with which an interrupted stream continues: the id of a mark
(``attempt:offset``) if one has just been reached, otherwise the cursor's own content.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from uuid import UUID

import numpy as np
from sqlalchemy import func, select

from trainwright.contracts.api.metrics import MetricPoints
from trainwright.contracts.run_state import FINAL
from trainwright_backend.core.db import Database, Read
from trainwright_backend.core.sse import ServerEvent, StreamUpdate
from trainwright_backend.metrics.batch_ingest import cursor_of, last_steps, newest_mark
from trainwright_backend.metrics.curves import Curve
from trainwright_backend.metrics.reading import read_curves, series_of
from trainwright_backend.metrics.selection import Selection, family
from trainwright_backend.metrics.stream_cursor import StreamCursor, parse_cursor
from trainwright_backend.metrics.tables import MetricMark, MetricSeries
from trainwright_backend.runs.tables import Run

PAGE_POINTS = 20_000
"""Points of all series together; a page is one or a few messages."""

MAX_PAGE_WIDTH = 64
"""A page of sparse series spans at most this many times the steps of a page of dense ones, so that it is not
too small."""


@dataclass
class MetricStreamReader:
    """Reads one stream of points. `read` is called repeatedly and continues at the cursor.

    The cursor does not depend on the selection: it counts all series, and each family as one.
    """

    database: Database
    run_id: UUID
    selection: Selection = field(default_factory=Selection)
    cursor: StreamCursor = field(default_factory=StreamCursor)
    _is_lost: bool = False
    _width: int = 1
    _furthest: int | None = 0
    """The last step sent, of any attempt; None if unknown."""

    def seek(self, last_event_id: str | None) -> None:
        """Continue where an earlier stream ended, or restart if its cursor is unknown by now."""
        if not last_event_id:
            return
        with self.database.read() as session:
            cursor = parse_cursor(session, self.run_id, last_event_id)
        self._is_lost = cursor is None
        self.cursor = cursor or StreamCursor()
        self._furthest = _last_of(self.cursor) or (None if self.cursor.attempt else 0)

    def read(self) -> StreamUpdate:
        """The next page of new points."""
        with self.database.read() as session:
            run = session.get(Run, self.run_id)
            if run is None:
                return StreamUpdate(ended=True)
            final = run.state in FINAL  # read before the mark, so that no points can be added in between
            events = [_rewind(0)] if self._is_lost else []
            self._is_lost = False
            mark = newest_mark(session, self.run_id)
            if mark is None or self.cursor.mark == cursor_of(mark):
                return StreamUpdate(events, ended=final)
            assert self.cursor.attempt <= mark.attempt, "no cursor is ahead of all points"
            events += self._go_back(session, mark)
            page: list[ServerEvent] = []
            while not page and self.cursor.mark != cursor_of(mark):
                page += self._page(session, mark)
        return StreamUpdate(events + page, more=True)

    def _go_back(self, session: Read, mark: MetricMark) -> Iterator[ServerEvent]:
        """Tell the client to discard points that a later attempt, or the cursor's own before its first point,
        removed."""
        if self.cursor.attempt == mark.attempt and _last_of(self.cursor):
            return
        left = _last_left(session, self.run_id, self.cursor)
        if self._furthest is None or left < self._furthest:
            self.cursor = self.cursor.rewound(left)
            self._furthest = left
            yield _rewind(left)

    def _page(self, session: Read, mark: MetricMark) -> Iterator[ServerEvent]:
        """The next points of the cursor's attempt; if there are none, the cursor moves to the next attempt."""
        cursor, is_newest = self.cursor, self.cursor.attempt == mark.attempt
        stored = mark.last_steps if is_newest else last_steps(session, self.run_id, cursor.attempt)
        behind = {name: step for name, step in stored.items() if step > cursor.last_steps.get(name, 0)}
        series = series_of(session, self.run_id, cursor.attempt, self.selection) if behind else []
        due = [item for item in series if family(item.name) in behind]
        if due:
            curves, horizon = self._next_points(session, due, behind)
            cursor = cursor.at({name: min(step, horizon) for name, step in behind.items()})
        else:
            curves, cursor = {}, cursor.at(behind)
        self._furthest = max(self._furthest or 0, _last_of(cursor))
        arrived = all(cursor.last_steps.get(name, 0) >= step for name, step in stored.items())
        if arrived:
            cursor = StreamCursor.of(mark) if is_newest else StreamCursor(cursor.attempt + 1)
        yield from _events(
            self.cursor, cursor, [(item, curves[item.id]) for item in due if len(curves[item.id])]
        )
        self.cursor = cursor

    def _next_points(
        self, session: Read, due: Sequence[MetricSeries], behind: dict[str, int]
    ) -> tuple[dict[int, Curve], int]:
        """Points of the series up to one step, the horizon, so that they fit a page."""
        had = {item.id: self.cursor.last_steps.get(family(item.name), 0) for item in due}
        has = {item.id: behind[family(item.name)] for item in due}
        most = max(PAGE_POINTS // len(due), 1)
        begin, end = min(had.values()), max(has.values())
        while True:
            horizon = min(begin + most * self._width, end)
            curves = _read_from(session, {item: max(had[item.id], begin) for item in due}, horizon)
            curves = {key: curve.between(-1, has[key]) for key, curve in curves.items()}
            longest = max(len(curve) for curve in curves.values())
            if longest or horizon == end:
                break
            begin, self._width = horizon, self._width * 8
        if longest > most:
            horizon = min(int(curve.steps[most - 1]) for curve in curves.values() if len(curve) > most)
            curves = {key: curve.between(-1, horizon) for key, curve in curves.items()}
        self._width = (
            1 if longest > most else min(self._width * (4 if longest < most // 4 else 1), MAX_PAGE_WIDTH)
        )
        return curves, horizon


def _read_from(session: Read, start_steps: Mapping[MetricSeries, int], last: int) -> dict[int, Curve]:
    """Points of each series after its own step, so that a series that lags behind does not cause the others to
    be read again."""
    curves = {start_step.id: Curve.empty() for start_step in start_steps}
    for after in {step for step in start_steps.values() if step < last}:
        curves |= read_curves(
            session, [one for one, step in start_steps.items() if step == after], after, last
        )
    return curves


def _events(
    before: StreamCursor, behind: StreamCursor, found: Sequence[tuple[MetricSeries, Curve]]
) -> Iterator[ServerEvent]:
    """The messages of a page, each with the id of the cursor after it."""
    messages = _messages(found)
    cursor = before
    for number, message in enumerate(messages, 1):
        steps = message[0][1].steps.tolist()
        sent = {family(one.name): steps[-1] for one, _ in message}
        cursor = cursor.at(sent) if number < len(messages) else behind
        points = MetricPoints(
            attempt=before.attempt,
            steps=steps,
            series={one.name: curve.values.tolist() for one, curve in message},
        )
        yield ServerEvent(points.model_dump_json(), event="points", id=cursor.id)


def _messages(found: Sequence[tuple[MetricSeries, Curve]]) -> list[list[tuple[MetricSeries, Curve]]]:
    """Group series with the same steps into one message; a family is split only into consecutive ranges of steps.

    A cursor has one step per family, so a message must not skip points that another series of the family still has.
    """
    families: dict[str, list[tuple[MetricSeries, Curve]]] = {}
    for one, curve in found:
        families.setdefault(family(one.name), []).append((one, curve))
    even: dict[bytes, list[tuple[MetricSeries, Curve]]] = {}
    uneven: list[list[tuple[MetricSeries, Curve]]] = []
    for members in families.values():
        steps, *others = {curve.steps.tobytes() for _, curve in members}
        if others:
            uneven += _segments(members)
        else:
            even.setdefault(steps, []).extend(members)
    return [*even.values(), *uneven]


def _segments(members: Sequence[tuple[MetricSeries, Curve]]) -> Iterator[list[tuple[MetricSeries, Curve]]]:
    """Split a family in which some series lack steps at each step from which other series have points."""
    steps = np.unique(np.concatenate([curve.steps for _, curve in members]))
    has_point = np.zeros((len(members), len(steps)), bool)
    for row, (_, curve) in zip(has_point, members, strict=True):
        row[np.searchsorted(steps, curve.steps)] = True
    cuts = np.flatnonzero((has_point[:, 1:] != has_point[:, :-1]).any(axis=0)) + 1
    for begin, end in pairwise([0, *cuts.tolist(), len(steps)]):
        after, last = int(steps[begin]) - 1, int(steps[end - 1])
        found = [members[row] for row in np.flatnonzero(has_point[:, begin]).tolist()]
        yield [(one, curve.between(after, last)) for one, curve in found]


def _last_of(cursor: StreamCursor) -> int:
    return max(cursor.last_steps.values(), default=0)


def _last_left(session: Read, run_id: UUID, cursor: StreamCursor) -> int:
    """The last step of those points before the cursor that still exist."""
    until = (MetricSeries.run_id == run_id, MetricSeries.attempt <= cursor.attempt)
    lasts = select(MetricSeries.attempt, func.max(MetricSeries.last_step).label("last")).where(*until)
    left: dict[int, int] = {
        row.attempt: row.last for row in session.execute(lasts.group_by(MetricSeries.attempt))
    }
    own = min(left.pop(cursor.attempt, 0), _last_of(cursor))
    return max([own, *left.values()])


def _rewind(step: int) -> ServerEvent:
    return ServerEvent(f'{{"step":{step}}}', event="rewind")
