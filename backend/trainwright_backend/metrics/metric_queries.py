"""Curves for charts: windows of a run's series, down-sampled to what a chart can show."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import select

from trainwright.contracts.api.metrics import AttemptMark, Metrics, RunSeries, Series
from trainwright.contracts.series import ELAPSED, STORED_SERIES
from trainwright_backend.core.db import Read
from trainwright_backend.core.errors import Invalid
from trainwright_backend.core.ids import public_id
from trainwright_backend.metrics.batch_ingest import cursor_of, newest_mark
from trainwright_backend.metrics.curves import Curve, downsampled
from trainwright_backend.metrics.reading import ALL_STEPS, FINEST_COARSE, read_curves, read_shown, series_of
from trainwright_backend.metrics.selection import Selection, family
from trainwright_backend.metrics.tables import MetricMark, MetricSeries
from trainwright_backend.runs.tables import Attempt, Run

MAX_POINTS = 10_000
MAX_SERIES = 1_000
MAX_TOTAL_POINTS = 500_000
"""Points of all series in one response: about 13 MB of JSON."""


MAX_COMPARED = 5_000
"""Series in a response about several runs."""

MAX_POINTS_IN_MEMORY = 500_000
"""Points in memory before down-sampling, when series are read together."""

SHORT_STEPS = 25_000
"""A series of at most this many steps is read together with others: reading its coarse copies would cost a
query, which takes longer."""

NO_POINT_LIMIT = 2**62
"""A number so large that no coarse copies are used."""


@dataclass(frozen=True)
class Window:
    """A range of the step axis, after_step < step ≤ to_step, and how many points of a curve to show in it."""

    after_step: int = -1
    to_step: int = ALL_STEPS
    points: int = MAX_POINTS


def read_metrics(session: Read, run: Run, selection: Selection, window: Window) -> Metrics:
    """Curves of the run over all its attempts, of at most ``window.points`` points each; see `downsampled`.

    Raises:
        Invalid: the names match more than `MAX_SERIES` series.
    """
    mark = newest_mark(session, run.id)
    series = _series(session, run, mark, selection, window, MAX_TOTAL_POINTS)
    return Metrics(series=series, attempts=_attempts(session, run.id), cursor=cursor_of(mark))


def compare_metrics(
    session: Read, runs: Sequence[Run], selection: Selection, window: Window
) -> list[RunSeries]:
    """Curves of several runs, in the order of ``runs``; see `read_metrics`. They share `MAX_TOTAL_POINTS`.

    Raises:
        Invalid: the names match more than `MAX_SERIES` series of one run, or `MAX_COMPARED` of all.
    """
    share = MAX_TOTAL_POINTS // max(1, len(runs))
    found, left = [], MAX_COMPARED
    for run in runs:
        series = _series(session, run, newest_mark(session, run.id), selection, window, share)
        left -= len(series)
        if left < 0:
            rule = f"These names match more than {MAX_COMPARED:,} series of these runs. Select fewer series or runs."
            raise Invalid.at("names", rule, len(runs))
        found.append(RunSeries.model_construct(run=public_id("run", run.id), series=series))
    return found


def _series(
    session: Read, run: Run, mark: MetricMark | None, selection: Selection, window: Window, max_total: int
) -> list[Series]:
    """At most ``max_total`` points, over all series.

    Few series are in memory at a time: all series of a long run are larger than the response.
    """
    by_name: dict[str, list[MetricSeries]] = {}
    for item in series_of(session, run.id, selection=selection):
        by_name.setdefault(item.name, []).append(item)
    most = min(window.points, max_total // max(1, _checked(len(by_name))))
    found: dict[str, Series] = {}
    for parts, curves in _all_shown(session, by_name.values(), mark, window, most):
        found[parts[0].name] = _series_reply(parts[0].name, parts[0].unit, _thinned_by_steps(curves, most))
    series = [found[name] for name in sorted(found, key=_order)]
    if selection.wants_elapsed and (elapsed := _elapsed(session, run, mark, window, most)) is not None:
        series.append(elapsed)
    return series


def _series_reply(name: str, unit: str, curve: Curve) -> Series:
    """A series for the response, constructed without validating each number, since they come from the database."""
    return Series.model_construct(
        name=name, unit=unit, steps=curve.steps.tolist(), values=curve.values.tolist()
    )


def _all_shown(
    session: Read,
    by_name: Iterable[list[MetricSeries]],
    mark: MetricMark | None,
    window: Window,
    points: int,
) -> Iterator[tuple[list[MetricSeries], list[Curve]]]:
    """The curves of each name in the window. Many short series are read with one query, which is most of their
    cost."""
    together: list[list[MetricSeries]] = []
    short = max(SHORT_STEPS, FINEST_COARSE * points)
    room = max(1, MAX_POINTS_IN_MEMORY // short)
    for parts in by_name:
        last = min(window.to_step, max(part.last_step for part in parts))
        if last - window.after_step > short:
            yield parts, [_shown(session, part, mark, window, points) for part in parts]
        else:
            together.append(parts)
            if sum(map(len, together)) >= room:
                yield from _shown_together(session, together, mark, window)
                together = []
    yield from _shown_together(session, together, mark, window)


def _shown_together(
    session: Read, each: list[list[MetricSeries]], mark: MetricMark | None, window: Window
) -> Iterator[tuple[list[MetricSeries], list[Curve]]]:
    whole = read_curves(
        session, [part for parts in each for part in parts], window.after_step, window.to_step
    )
    for parts in each:
        yield parts, [whole[part.id].between(window.after_step, _last(part, mark, window)) for part in parts]


def _elapsed(session: Read, run: Run, mark: MetricMark | None, window: Window, points: int) -> Series | None:
    """Training time up to each step, summed over all steps before down-sampling."""
    from_start = Window(to_step=window.to_step, points=NO_POINT_LIMIT)
    parts = series_of(session, run.id, selection=Selection(["seconds"]))
    lengths = Curve.joined([_shown(session, part, mark, from_start, NO_POINT_LIMIT) for part in parts])
    if not len(lengths):
        return None
    passed = Curve(lengths.steps, lengths.values.cumsum()).between(window.after_step)
    shown = downsampled(passed, points)
    return _series_reply(ELAPSED, "s", shown)


def _thinned_by_steps(parts: Sequence[Curve], points: int) -> Curve:
    """At most ``points`` points, distributed by steps: long attempts were read as coarse copies, short ones
    completely."""
    found = [part for part in parts if len(part)]
    if sum(len(part) for part in found) <= points:
        return Curve.joined(found)
    spans = [int(part.steps[-1] - part.steps[0]) + 1 for part in found]
    shares = [max(2, points * span // sum(spans)) for span in spans]
    return downsampled(Curve.joined([downsampled(*pair) for pair in zip(found, shares, strict=True)]), points)


def _shown(
    session: Read, series: MetricSeries, mark: MetricMark | None, window: Window, points: int
) -> Curve:
    """The points of one attempt's series in the window."""
    return read_shown(session, series, window.after_step, _last(series, mark, window), points)


def _last(series: MetricSeries, mark: MetricMark | None, window: Window) -> int:
    """The last step to show, at most that of ``mark``."""
    if mark is None or series.attempt != mark.attempt:
        return window.to_step
    return min(window.to_step, int(mark.last_steps.get(family(series.name), 0)))


def read_names(session: Read, run: Run, selection: Selection) -> list[str]:
    """Names of the run's series that have points, in the order of charts."""
    wanted = select(MetricSeries.name).where(MetricSeries.run_id == run.id, MetricSeries.last_step > 0)
    return sorted({name for name in session.scalars(wanted) if name in selection}, key=_order)


def _checked(series: int) -> int:
    if series > MAX_SERIES:
        rule = f"These names match {series:,} series; one response has at most {MAX_SERIES:,}. Select fewer."
        raise Invalid.at("names", rule, series)
    return series


def _attempts(session: Read, run_id: UUID) -> list[AttemptMark]:
    rows = session.scalars(select(Attempt).where(Attempt.run_id == run_id).order_by(Attempt.number))
    return [
        AttemptMark(
            attempt=row.number,
            resume_step=row.resume_step,
            started=row.started,
            ended=row.ended,
            reason=row.reason,
        )
        for row in rows
    ]


def _order(name: str) -> tuple[int, str]:
    return (STORED_SERIES.index(name) if name in STORED_SERIES else len(STORED_SERIES), name)
