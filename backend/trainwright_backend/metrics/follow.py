"""A run's points as they come, for streams.

A follower stands at a mark: an attempt, and the last step of each series that it has. The next mark tells what is new.
When a later attempt began meanwhile, the follower is first told to forget what lies after its resume point.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import UUID

import numpy as np
from sqlalchemy import func, select

from trainwright.contracts.api import MetricPoints
from trainwright.contracts.run_state import FINAL
from trainwright_backend.core.db import Database, Read
from trainwright_backend.core.stream import ServerEvent
from trainwright_backend.metrics.names import Selection, family
from trainwright_backend.metrics.points import Curve, read_curves, series_of
from trainwright_backend.metrics.service import cursor_of, newest_mark
from trainwright_backend.metrics.tables import MetricMark, MetricSeries
from trainwright_backend.runs.tables import Attempt, Run

MESSAGE_POINTS = 20_000
"""In one message, over all its series."""


@dataclass
class Follower:
    """Where one stream stands. `read` goes on from there; it is called again and again.

    Where it stands does not depend on its selection: the mark counts all series, families as one.
    """

    database: Database
    run_id: UUID
    selection: Selection = field(default_factory=Selection)
    cursor: str = "0:0"
    attempt: int = 0
    last_steps: dict[str, int] = field(default_factory=dict)

    def begin(self, last_event_id: str | None) -> list[ServerEvent]:
        """Stand where an earlier stream ended; where that is too long ago, begin anew."""
        if last_event_id in (None, "", "0:0"):
            return []
        with self.database.read() as session:
            mark = _mark_at(session, self.run_id, str(last_event_id))
        if mark is None:
            return [_rewind(0)]
        self._stand_at(mark)
        return []

    def read(self) -> tuple[list[ServerEvent], bool]:
        """What is new, and whether nothing more will come."""
        with self.database.read() as session:
            run = session.get(Run, self.run_id)
            if run is None:
                return [], True
            final = run.state in FINAL  # read before the mark, so that no last points slip in between
            mark = newest_mark(session, self.run_id)
            if mark is None or cursor_of(mark) == self.cursor:
                return [], final
            events = list(self._news(session, mark))
        self._stand_at(mark)
        return events, False

    def _news(self, session: Read, mark: MetricMark) -> Iterator[ServerEvent]:
        resumed_at = _least_resume(session, self.run_id, self.attempt, mark.attempt)
        if self.attempt and resumed_at is not None:
            self.last_steps = {name: min(step, resumed_at) for name, step in self.last_steps.items()}
            yield _rewind(resumed_at)
        before: MetricPoints | None = None
        for one in range(self.attempt, mark.attempt + 1):
            for points in self._fresh(session, one, mark):
                if before is not None:
                    yield ServerEvent(before.model_dump_json(), event="points")
                before = points
        if before is not None:  # only the last has an id: who breaks off earlier gets all of them again
            yield ServerEvent(before.model_dump_json(), event="points", id=cursor_of(mark))

    def _fresh(self, session: Read, attempt: int, mark: MetricMark) -> Iterator[MetricPoints]:
        """Points of one attempt that the follower does not have, series with the same steps together."""
        series = series_of(session, self.run_id, attempt, self.selection)
        had = self.last_steps if attempt == self.attempt else {}
        have = {one.id: had.get(family(one.name), 0) for one in series}
        curves = read_curves(session, series, min(have.values(), default=0))
        by_steps: dict[bytes, list[tuple[MetricSeries, Curve]]] = {}
        for one in series:
            last = mark.last_steps.get(family(one.name), 0) if attempt == mark.attempt else None
            curve = curves[one.id].between(have[one.id], last)
            if len(curve):
                by_steps.setdefault(curve.steps.tobytes(), []).append((one, curve))
        for group in by_steps.values():
            steps = group[0][1].steps
            length = max(1, MESSAGE_POINTS // len(group))
            for begin in range(0, len(steps), length):
                part = np.s_[begin : begin + length]
                yield MetricPoints(
                    attempt=attempt,
                    steps=steps[part].tolist(),
                    series={one.name: curve.values[part].tolist() for one, curve in group},
                )

    def _stand_at(self, mark: MetricMark) -> None:
        self.cursor = cursor_of(mark)
        self.attempt = mark.attempt
        self.last_steps = dict(mark.last_steps)


def _mark_at(session: Read, run_id: UUID, cursor: str) -> MetricMark | None:
    attempt, _, offset = cursor.partition(":")
    if not (attempt.isdecimal() and offset.isdecimal()) or len(cursor) > 30:
        return None
    wanted = select(MetricMark).where(
        MetricMark.run_id == run_id, MetricMark.attempt == int(attempt), MetricMark.offset == int(offset)
    )
    return session.scalars(wanted).one_or_none()


def _least_resume(session: Read, run_id: UUID, after: int, last: int) -> int | None:
    steps = select(func.min(Attempt.resume_step)).where(
        Attempt.run_id == run_id, Attempt.number > after, Attempt.number <= last
    )
    return session.scalar(steps)


def _rewind(step: int) -> ServerEvent:
    return ServerEvent(f'{{"step":{step}}}', event="rewind")
