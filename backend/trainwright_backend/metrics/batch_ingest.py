"""Storing batches of an attempt's events.

A batch is one range of ``events.jsonl``. Its offset, its events, its points, the rewind that an
`attempt_started` requires, and the run's summary are written in one transaction, so a batch is stored
completely or not at all, and only once.
"""

from datetime import datetime
from uuid import UUID

from pydantic import ValidationError
from sqlalchemy import delete, insert, select, update

from trainwright.contracts.agent_protocol import Batch
from trainwright.contracts.events import (
    TRAINER_EVENT,
    AttemptStarted,
    CheckpointSaved,
    Finished,
    Note,
    Samples,
)
from trainwright.contracts.job_spec import EVENTS_NAME
from trainwright_backend.core.db import Read, Write, storable
from trainwright_backend.core.errors import Invalid
from trainwright_backend.metrics.curves import Curve
from trainwright_backend.metrics.hardware import hardware_blocks
from trainwright_backend.metrics.peak_fractions import plausible_fractions
from trainwright_backend.metrics.reading import read_curves, series_of
from trainwright_backend.metrics.samples import rewind_samples, store_samples
from trainwright_backend.metrics.selection import Selection, family, is_of_tensor
from trainwright_backend.metrics.tables import MetricMark, MetricSeries
from trainwright_backend.metrics.writing import append, rewind
from trainwright_backend.runs.attempt_files import advance_offset
from trainwright_backend.runs.notify import notify_run
from trainwright_backend.runs.tables import Attempt, Run, RunSummary
from trainwright_backend.runs.transitions import add_event

SPARK_POINTS = 32
KEPT_MARKS = 600
MARKS_AT_ONCE = 50
"""Number of marks deleted together: deleting them one by one would cost every batch a statement."""

MAX_MESSAGE_LENGTH = 2_000

RECENT_STEPS = 20
"""Steps that the speeds of a summary are averaged over: one step may be twice as fast as the next."""

SPEEDS = ("tokens_per_second", "mfu", "bf16_mfu", "hfu")
"""Series in proportion to 1 ÷ ``seconds``: their mean is harmonic, so that it belongs to the mean of ``seconds``."""


def store_batch(session: Write, run: Run, batch: Batch) -> int:
    """Store a batch of the run's newest attempt; returns how many bytes of its events are now stored.

    Raises:
        Conflict: ``wrong_offset``, with the stored offset.
    """
    if batch.file != EVENTS_NAME:
        raise Invalid.at("file", f"Batches contain {EVENTS_NAME} only; logs have another route.", batch.file)
    advance_offset(session, run, EVENTS_NAME, batch.offset, batch.next_offset)
    summary = session.get_one(RunSummary, run.id)
    rewound = False
    for line in batch.events:
        rewound = _take_event(session, run, summary, line) or rewound
    blocks = plausible_fractions(session, run, summary, batch.metrics)
    added = append(session, run.id, run.attempt, [*blocks, *hardware_blocks(batch)])
    _summarize(run, summary, added)
    _list(run, summary)
    _mark(session, run, batch.next_offset, added, rewound)
    notify_run(session, run.id)
    return batch.next_offset


def newest_mark(session: Read, run_id: UUID) -> MetricMark | None:
    """The mark at the end of the run's points."""
    marks = select(MetricMark).where(MetricMark.run_id == run_id).order_by(MetricMark.number.desc())
    return session.scalars(marks.limit(1)).first()


def last_steps(session: Read, run_id: UUID, attempt: int) -> dict[str, int]:
    """Last step of each series of the attempt, with one entry for each family."""
    of_attempt = (MetricSeries.run_id == run_id, MetricSeries.attempt == attempt)
    found: dict[str, int] = {}
    for name, step in session.execute(select(MetricSeries.name, MetricSeries.last_step).where(*of_attempt)):
        key = family(name)
        found[key] = max(step, found.get(key, 0))
    return found


def cursor_of(mark: MetricMark | None) -> str:
    """The id of a mark in streams."""
    return "0:0" if mark is None else f"{mark.attempt}:{mark.offset}"


def _take_event(session: Write, run: Run, summary: RunSummary, line: dict[str, object]) -> bool:
    """Store the event; returns whether points were removed for it."""
    try:
        event = TRAINER_EVENT.validate_python(line)
    except ValidationError:  # of a newer trainer
        add_event(
            session,
            run,
            str(line.get("type", "note"))[:32],
            str(line.get("message", ""))[:MAX_MESSAGE_LENGTH],
        )
        return False
    if isinstance(event, AttemptStarted):
        _begin_attempt(session, run, summary, event)
    elif isinstance(event, CheckpointSaved):
        words = f"saved step {event.step:,} ({event.bytes / 2**20:,.1f} MiB in {event.seconds:.2f} s)"
        _add(session, run, event.type, words, event.time, event.step)
    elif isinstance(event, Samples):
        store_samples(session, run, event)
    elif isinstance(event, Finished):
        _add(session, run, event.type, f"trained to step {event.step:,}", event.time, event.step)
    elif isinstance(event, Note):
        _add(session, run, event.type, event.message[:MAX_MESSAGE_LENGTH], event.time, None)
    return isinstance(event, AttemptStarted)


def _add(session: Write, run: Run, kind: str, words: str, time: datetime, step: int | None) -> None:
    add_event(session, run, kind, words, step=step, time=time)


def _begin_attempt(session: Write, run: Run, summary: RunSummary, event: AttemptStarted) -> None:
    """Remove what earlier attempts wrote after the step that was actually loaded, and start the summary from
    there."""
    rewind(session, run.id, event.resume_step)
    rewind_samples(session, run.id, event.resume_step)
    this = update(Attempt).where(Attempt.run_id == run.id, Attempt.number == run.attempt)
    session.execute(this.values(resume_step=event.resume_step))
    summary.attempt = run.attempt
    summary.step = min(summary.step, event.resume_step)
    summary.peak_beaten = False
    summary.peak_name = _storable(event.peak_name)
    summary.bf16_peak_name = _storable(event.bf16_peak_name)
    summary.spark = [point for point in summary.spark if point[0] <= event.resume_step]
    summary.values = _last_values(session, run.id)
    origin = f"from step {event.resume_step:,}" if event.resume_step else "from the start"
    ranks = "1 rank" if event.ranks == 1 else f"{event.ranks} ranks"
    words = f"training {origin}: {event.parameters:,} parameters, {ranks} on {event.device}"
    _add(session, run, event.type, words, event.time, event.resume_step)


def _storable(name: str | None) -> str | None:
    return None if name is None else storable(name)


def _last_values(session: Read, run_id: UUID) -> dict[str, float]:
    series = [item for item in series_of(session, run_id, selection=Selection()) if item.last_step]
    return {
        item.name: float(curve.values[-1])
        for item in series
        if len(curve := read_curves(session, [item], item.last_step - 1)[item.id])
    }


def _summarize(run: Run, summary: RunSummary, added: dict[str, Curve]) -> None:
    if not added:
        return
    summary.attempt = run.attempt
    summary.step = max(summary.step, *(int(curve.steps[-1]) for curve in added.values()))
    last = {name: float(curve.values[-1]) for name, curve in added.items() if not is_of_tensor(name)}
    recent = {
        name: _recent_mean(
            summary.values.get(name), added[name], -1 if name in SPEEDS else 1, run.forked_step or 0
        )
        for name in (*SPEEDS, "seconds")
        if name in added
    }
    summary.values = {**summary.values, **last, **recent}
    if "loss" in added:
        _extend_spark(summary, added["loss"])


def _recent_mean(before: float | None, curve: Curve, power: int, start: int) -> float:
    """The power mean of a run's first 20 steps; later with weights that fall by a twentieth at each step.

    Args:
        before: the mean of the steps before ``curve``.
        curve: the new values, of one or more steps.
        power: 1 for the arithmetic mean, -1 for the harmonic one.
        start: the step that the run was forked from, or 0.
    """
    mean = before**power if before else None
    for step, value in zip(curve.steps.tolist(), curve.values.tolist(), strict=True):
        if value > 0:
            weight = 1.0 if mean is None else 1 / min(max(step - start, 1), RECENT_STEPS)
            mean = value**power * weight + (0.0 if mean is None else mean * (1 - weight))
    return float(curve.values[-1]) if mean is None else mean ** (1 / power)


def _list(run: Run, summary: RunSummary) -> None:
    """Store the metrics by which lists of runs are sorted."""
    run.last_step = summary.step or None
    run.loss = summary.values.get("loss")
    run.mfu = summary.values.get("mfu")
    run.tokens_per_second = summary.values.get("tokens_per_second")


def _extend_spark(summary: RunSummary, loss: Curve) -> None:
    """Add losses at multiples of a stride, which doubles whenever there are more than 32."""
    stride = summary.spark_stride
    new = loss.steps % stride == 0
    spark = [*summary.spark, *zip(loss.steps[new].tolist(), loss.values[new].tolist(), strict=True)]
    while len(spark) > SPARK_POINTS:
        stride *= 2
        spark = [point for point in spark if point[0] % stride == 0]
    summary.spark = [list(point) for point in spark]
    summary.spark_stride = stride


def _mark(session: Write, run: Run, offset: int, added: dict[str, Curve], rewound: bool) -> None:
    """Store how far the attempt's series are, and now and then delete marks that are too old to continue from."""
    newest = newest_mark(session, run.id)
    number = 1 if newest is None else newest.number + 1
    if rewound or newest is None or newest.attempt != run.attempt:
        steps = last_steps(session, run.id, run.attempt)
    else:
        steps = dict(newest.last_steps)
        for name, curve in added.items():
            steps[family(name)] = max(int(curve.steps[-1]), steps.get(family(name), 0))
    unwanted = MetricMark.number == number - 1 if _is_at(newest, run.attempt, offset) else None
    if number % MARKS_AT_ONCE == 0:
        old = MetricMark.number <= number - KEPT_MARKS
        unwanted = old if unwanted is None else old | unwanted
    if unwanted is not None:
        session.change(delete(MetricMark).where(MetricMark.run_id == run.id, unwanted))
    row = {"run_id": run.id, "number": number, "attempt": run.attempt, "offset": offset}
    session.execute(insert(MetricMark).values(**row, last_steps=steps))


def _is_at(mark: MetricMark | None, attempt: int, offset: int) -> bool:
    return mark is not None and (mark.attempt, mark.offset) == (attempt, offset)
