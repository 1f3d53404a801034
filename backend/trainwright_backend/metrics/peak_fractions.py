"""Fractions of a peak (MFU, HFU) are shown only while the peak can be true.

No run is faster than its device. If a run reports a fraction above 1, its peak was measured wrongly, and the attempt's
other fractions are wrong too. They are deleted, and later ones are dropped. The run keeps the name of the peak, and
says that the peak is not known. Agents measure the peak again, and the next attempt uses the new value.
"""

from collections.abc import Sequence

from sqlalchemy import delete

from trainwright.contracts.agent_protocol import MetricBlock
from trainwright_backend.core.db import Write
from trainwright_backend.metrics.tables import MetricSeries
from trainwright_backend.runs.tables import Run, RunSummary
from trainwright_backend.runs.transitions import add_event

FRACTIONS = ("mfu", "bf16_mfu", "hfu")


def plausible_fractions(
    session: Write, run: Run, summary: RunSummary, blocks: Sequence[MetricBlock]
) -> Sequence[MetricBlock]:
    """``blocks`` without fractions of a peak that the run has shown to be wrong, in these blocks or before."""
    if not summary.peak_beaten:
        step = _first_step_above_one(blocks)
        if step is None:
            return blocks
        _give_up(session, run, summary, step)
    return [
        block.model_copy(
            update={
                "series": {name: values for name, values in block.series.items() if name not in FRACTIONS}
            }
        )
        for block in blocks
    ]


def _first_step_above_one(blocks: Sequence[MetricBlock]) -> int | None:
    return next(
        (
            step
            for block in blocks
            for name in FRACTIONS
            for step, value in zip(block.steps, block.series.get(name, ()), strict=False)
            if value > 1
        ),
        None,
    )


def _give_up(session: Write, run: Run, summary: RunSummary, step: int) -> None:
    summary.peak_beaten = True
    summary.values = {name: value for name, value in summary.values.items() if name not in FRACTIONS}
    of_attempt = (MetricSeries.run_id == run.id, MetricSeries.attempt == run.attempt)
    session.execute(delete(MetricSeries).where(*of_attempt, MetricSeries.name.in_(FRACTIONS)))
    message = f"MFU is not shown: at step {step:,} the run was faster than the {summary.peak_name or 'peak'}"
    add_event(session, run, "peak_beaten", message, step=step)
