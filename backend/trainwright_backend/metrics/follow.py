"""A run's points as they come, for streams.

A follower stands at a place: it has all points of earlier attempts, and of its own attempt those up to a step of each
series. What is new is read a page at a time, so a long run is never in memory as a whole. When points that it has were
taken back meanwhile, the follower is first told to forget them; what is stored decides that, not where an attempt was
expected to resume, since one that ended before it began took nothing back.

Every message has the id of the place behind it, by which a stream that broke off goes on: the name of a mark
(``attempt:offset``) where one has just been reached, else the place itself.
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
from trainwright_backend.core.stream import News, ServerEvent
from trainwright_backend.metrics.curves import Curve
from trainwright_backend.metrics.names import Selection, family
from trainwright_backend.metrics.places import Place, place_at
from trainwright_backend.metrics.reading import read_curves, series_of
from trainwright_backend.metrics.service import cursor_of, last_steps, newest_mark
from trainwright_backend.metrics.tables import MetricMark, MetricSeries
from trainwright_backend.runs.tables import Run

PAGE_POINTS = 20_000
"""Of all series together; a page is one message or a few."""

WIDEST_PAGE = 64
"""Times as many steps as dense series may fill a page with: sparse ones are not read in crumbs."""


@dataclass
class Follower:
    """One stream of points. `read` goes on where it stands; it is called again and again.

    Where it stands does not depend on its selection: a place counts all series, families as one.
    """

    database: Database
    run_id: UUID
    selection: Selection = field(default_factory=Selection)
    place: Place = field(default_factory=Place)
    _is_lost: bool = False
    _width: int = 1
    _furthest: int | None = 0
    """The last step that was sent, of any attempt; None: nobody knows."""

    def begin(self, last_event_id: str | None) -> None:
        """Stand where an earlier stream ended; where nobody knows that place any more, begin anew."""
        if not last_event_id:
            return
        with self.database.read() as session:
            place = place_at(session, self.run_id, last_event_id)
        self._is_lost = place is None
        self.place = place or Place()
        self._furthest = _last_of(self.place) or (None if self.place.attempt else 0)

    def read(self) -> News:
        """The next page of what is new."""
        with self.database.read() as session:
            run = session.get(Run, self.run_id)
            if run is None:
                return News(ended=True)
            final = run.state in FINAL  # read before the mark, so that no last points slip in between
            events = [_rewind(0)] if self._is_lost else []
            self._is_lost = False
            mark = newest_mark(session, self.run_id)
            if mark is None or self.place.mark == cursor_of(mark):
                return News(events, ended=final)
            assert self.place.attempt <= mark.attempt, "no place is ahead of all points"
            events += self._go_back(session, mark)
            page: list[ServerEvent] = []
            while not page and self.place.mark != cursor_of(mark):
                page += self._page(session, mark)
        return News(events + page, more=True)

    def _go_back(self, session: Read, mark: MetricMark) -> Iterator[ServerEvent]:
        """A later attempt may have taken back points behind the place; the place's own, before its first point."""
        if self.place.attempt == mark.attempt and _last_of(self.place):
            return
        left = _last_left(session, self.run_id, self.place)
        if self._furthest is None or left < self._furthest:
            self.place = self.place.rewound(left)
            self._furthest = left
            yield _rewind(left)

    def _page(self, session: Read, mark: MetricMark) -> Iterator[ServerEvent]:
        """The next points of the place's attempt, or none and the place is the beginning of the next one."""
        place, is_newest = self.place, self.place.attempt == mark.attempt
        stored = mark.last_steps if is_newest else last_steps(session, self.run_id, place.attempt)
        behind = {name: step for name, step in stored.items() if step > place.last_steps.get(name, 0)}
        series = series_of(session, self.run_id, place.attempt, self.selection) if behind else []
        due = [one for one in series if family(one.name) in behind]
        if due:
            curves, horizon = self._next_points(session, due, behind)
            place = place.at({name: min(step, horizon) for name, step in behind.items()})
        else:
            curves, place = {}, place.at(behind)
        self._furthest = max(self._furthest or 0, _last_of(place))
        arrived = all(place.last_steps.get(name, 0) >= step for name, step in stored.items())
        if arrived:
            place = Place.of(mark) if is_newest else Place(place.attempt + 1)
        yield from _events(self.place, place, [(one, curves[one.id]) for one in due if len(curves[one.id])])
        self.place = place

    def _next_points(
        self, session: Read, due: Sequence[MetricSeries], behind: dict[str, int]
    ) -> tuple[dict[int, Curve], int]:
        """Points of the series up to one step, the horizon, that fit a page."""
        had = {one.id: self.place.last_steps.get(family(one.name), 0) for one in due}
        has = {one.id: behind[family(one.name)] for one in due}
        most = max(PAGE_POINTS // len(due), 1)
        begin, end = min(had.values()), max(has.values())
        while True:
            horizon = min(begin + most * self._width, end)
            curves = _read_from(session, {one: max(had[one.id], begin) for one in due}, horizon)
            curves = {key: curve.between(-1, has[key]) for key, curve in curves.items()}
            longest = max(len(curve) for curve in curves.values())
            if longest or horizon == end:
                break
            begin, self._width = horizon, self._width * 8
        if longest > most:
            horizon = min(int(curve.steps[most - 1]) for curve in curves.values() if len(curve) > most)
            curves = {key: curve.between(-1, horizon) for key, curve in curves.items()}
        self._width = (
            1 if longest > most else min(self._width * (4 if longest < most // 4 else 1), WIDEST_PAGE)
        )
        return curves, horizon


def _read_from(session: Read, places: Mapping[MetricSeries, int], last: int) -> dict[int, Curve]:
    """Points of each series after its own step, so that one that lags behind does not have the others read again."""
    curves = {one.id: Curve.empty() for one in places}
    for after in {step for step in places.values() if step < last}:
        curves |= read_curves(session, [one for one, step in places.items() if step == after], after, last)
    return curves


def _events(
    before: Place, behind: Place, found: Sequence[tuple[MetricSeries, Curve]]
) -> Iterator[ServerEvent]:
    """The messages of a page, and with each the id of where it leads to."""
    messages = _messages(found)
    place = before
    for number, message in enumerate(messages, 1):
        steps = message[0][1].steps.tolist()
        sent = {family(one.name): steps[-1] for one, _ in message}
        place = place.at(sent) if number < len(messages) else behind
        points = MetricPoints(
            attempt=before.attempt,
            steps=steps,
            series={one.name: curve.values.tolist() for one, curve in message},
        )
        yield ServerEvent(points.model_dump_json(), event="points", id=place.id)


def _messages(found: Sequence[tuple[MetricSeries, Curve]]) -> list[list[tuple[MetricSeries, Curve]]]:
    """Series with the same steps in one; no family in two but one stretch of steps after the other.

    A place has one step of a family, so a message may not leave behind what another of the family is still to bring.
    """
    families: dict[str, list[tuple[MetricSeries, Curve]]] = {}
    for one, curve in found:
        families.setdefault(family(one.name), []).append((one, curve))
    even: dict[bytes, list[tuple[MetricSeries, Curve]]] = {}
    uneven: list[list[tuple[MetricSeries, Curve]]] = []
    for members in families.values():
        steps, *others = {curve.steps.tobytes() for _, curve in members}
        if others:
            uneven += _stretches(members)
        else:
            even.setdefault(steps, []).extend(members)
    return [*even.values(), *uneven]


def _stretches(members: Sequence[tuple[MetricSeries, Curve]]) -> Iterator[list[tuple[MetricSeries, Curve]]]:
    """A family of which some lack a step, cut where others begin to have points or cease to."""
    steps = np.unique(np.concatenate([curve.steps for _, curve in members]))
    has_point = np.zeros((len(members), len(steps)), bool)
    for row, (_, curve) in zip(has_point, members, strict=True):
        row[np.searchsorted(steps, curve.steps)] = True
    cuts = np.flatnonzero((has_point[:, 1:] != has_point[:, :-1]).any(axis=0)) + 1
    for begin, end in pairwise([0, *cuts.tolist(), len(steps)]):
        after, last = int(steps[begin]) - 1, int(steps[end - 1])
        found = [members[row] for row in np.flatnonzero(has_point[:, begin]).tolist()]
        yield [(one, curve.between(after, last)) for one, curve in found]


def _last_of(place: Place) -> int:
    return max(place.last_steps.values(), default=0)


def _last_left(session: Read, run_id: UUID, place: Place) -> int:
    """The last step of those points behind the place that still stand."""
    until = (MetricSeries.run_id == run_id, MetricSeries.attempt <= place.attempt)
    lasts = select(MetricSeries.attempt, func.max(MetricSeries.last_step).label("last")).where(*until)
    left: dict[int, int] = {
        row.attempt: row.last for row in session.execute(lasts.group_by(MetricSeries.attempt))
    }
    own = min(left.pop(place.attempt, 0), _last_of(place))
    return max([own, *left.values()])


def _rewind(step: int) -> ServerEvent:
    return ServerEvent(f'{{"step":{step}}}', event="rewind")
