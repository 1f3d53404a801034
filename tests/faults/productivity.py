"""The effective training time ratio of runs that faults have disturbed.

It is the time of the steps that a run kept ÷ the time from its first admission to the end of its training:

    ETTR = Σ kept steps × median step time ÷ Σ (end of training − first admission),    sums over runs

The numerator counts each step once, however many attempts made it. So it excludes the start of attempts, steps that are lost and
trained again, waits for a lease, a node or a checkpoint, and all slow steps. The denominator starts when the run first gets its
slots, since a wait for free ones is not caused by faults; later waits count. The export after the last step is no training.

MegaScale divides likewise: iterations × time of an iteration ÷ total training time (Jiang et al., 2024, "MegaScale: Scaling Large
Language Model Training to More Than 10,000 GPUs", section 6.3). Meta calls the ratio of productive run time to the wall time of a
job ETTR (Kokolis et al., 2024, "Revisiting Reliability in Large-Scale Machine Learning Research Clusters").
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from tests.live import series
from trainwright.client import TeamClient
from trainwright.contracts.run_state import RunState


@dataclass(frozen=True)
class Productivity:
    """What became of the time of one run."""

    kept_seconds: float
    """Steps in its metrics × their median time."""

    wall_seconds: float
    """From its first admission to the end of its training."""

    recoveries_seconds: list[float]
    """From the end of each attempt that trained until the next one trains."""


def productivity(team: TeamClient, run_id: str) -> Productivity:
    """Of a run that has ended."""
    states = [(event.time, event.state) for event in team.events(run_id) if event.state is not None]
    admitted = next(time for time, state in states if state is RunState.LEASED)
    starts = [time for time, state in states if state is RunState.RUNNING]
    ends = [time for time, state in states if state is RunState.COMPLETING and time >= starts[-1]]
    trained = ends[0] if ends else states[-1][0]
    seconds = series(team, run_id, "seconds")
    stops = [
        time for (_, before), (time, _) in pairwise(states) if before is RunState.RUNNING and time < trained
    ]
    return Productivity(
        kept_seconds=len(seconds) * median(seconds.values()),
        wall_seconds=(trained - admitted).total_seconds(),
        recoveries_seconds=[
            (again - stop).total_seconds() for stop, again in zip(stops, starts[1:], strict=False)
        ],
    )


def effective_training_time_ratio(runs: Iterable[Productivity]) -> float:
    runs = list(runs)
    return sum(run.kept_seconds for run in runs) / sum(run.wall_seconds for run in runs)
