"""Samples: text that a run's model generated from its prompts, one row per validation.

A run keeps at most ``MAX_KEPT`` rows. Above that, every second row is deleted, so that the rest still cover the whole run.
"""

from uuid import UUID

from sqlalchemy import delete, select

from trainwright.contracts.api.runs import RunSamples
from trainwright.contracts.checkpoint import MAX_STEP
from trainwright.contracts.events import MAX_SAMPLE_LENGTH, Sample, Samples
from trainwright.contracts.training_spec import MAX_PROMPT_LENGTH, MAX_PROMPTS
from trainwright_backend.core.db import Read, Write, storable
from trainwright_backend.metrics.tables import RunSample
from trainwright_backend.runs.tables import Run

MAX_KEPT = 400


def store_samples(session: Write, run: Run, event: Samples) -> None:
    """Store the samples of the run's newest attempt; a repeated step replaces its row."""
    if not 0 <= event.step <= MAX_STEP:
        return
    row = RunSample(
        run_id=run.id,
        step=event.step,
        attempt=run.attempt,
        time=event.time,
        samples=[_bounded(sample) for sample in event.samples[:MAX_PROMPTS]],
    )
    session.merge(row)
    session.flush()
    _thin(session, run.id)


def rewind_samples(session: Write, run_id: UUID, step: int) -> None:
    """Delete the samples of steps after ``step``."""
    session.execute(delete(RunSample).where(RunSample.run_id == run_id, RunSample.step > step))


def list_samples(session: Read, run: Run, before: int | None, limit: int) -> list[RunSamples]:
    """The run's samples before a step, the newest first."""
    found = select(RunSample).where(RunSample.run_id == run.id).order_by(RunSample.step.desc()).limit(limit)
    if before is not None:
        found = found.where(RunSample.step < before)
    return [
        RunSamples(
            step=row.step,
            attempt=row.attempt,
            time=row.time,
            samples=[Sample.model_validate(sample) for sample in row.samples],
        )
        for row in session.scalars(found)
    ]


def _bounded(sample: Sample) -> dict[str, str]:
    """The sample, cut to the lengths that a trainer never exceeds. A node could send more."""
    return {
        "prompt": storable(sample.prompt)[:MAX_PROMPT_LENGTH],
        "text": storable(sample.text)[:MAX_SAMPLE_LENGTH],
    }


def _thin(session: Write, run_id: UUID) -> None:
    steps = session.scalars(
        select(RunSample.step).where(RunSample.run_id == run_id).order_by(RunSample.step)
    ).all()
    if len(steps) > MAX_KEPT:
        # The first row stays, and, because the number is odd, the newest one too.
        session.execute(
            delete(RunSample).where(RunSample.run_id == run_id, RunSample.step.in_(steps[1:-1:2]))
        )
