"""When waiting runs are expected to start: what the scheduler would do if all runs end as expected (`simulation`).

A run on nodes is expected to end at its own estimate of the time left. A waiting run is expected to last as long as an equal
run that was measured (`durations`). Neither is expected to last longer than its maximum run time. Where there is nothing better, the
length is rough: that of a run at the typical speed of the team's newest runs. Starts that depend on it say so. A team that
measured no run yet has no expected starts behind runs of its own; nor has a run that waits for hours or storage.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from sqlalchemy import select

from trainwright.contracts.agent_protocol import Timers
from trainwright_backend.core.db import Read
from trainwright_backend.runs.max_time import remaining_seconds
from trainwright_backend.runs.queue import ExpectedStart
from trainwright_backend.runs.tables import Run
from trainwright_backend.scheduling.durations import Durations, MeasuredRates, RoughDurations
from trainwright_backend.scheduling.occupants import RunOnNodes, shorter
from trainwright_backend.scheduling.placement_round import device_queues
from trainwright_backend.scheduling.simulation import Length, Simulation

MAX_MEASURED = 20
"""Kinds of waiting runs for which equal runs are looked up."""


def forecast_starts(
    session: Read, team_id: UUID, timers: Timers, min_run_minutes: float
) -> dict[UUID, ExpectedStart]:
    """When the team's waiting runs are expected to start. Runs without a known start are left out."""
    measured = Durations(session, MeasuredRates(), most_looked_up=MAX_MEASURED)
    lengths = _Lengths(session, measured, RoughDurations(session))
    found: dict[UUID, ExpectedStart] = {}
    for queue in device_queues(session, timers, min_run_minutes, measured):
        mine = {run.id for run in queue.runs.runs if run.team_id == team_id}
        if not mine:
            continue
        on_nodes = lengths.of_runs_on_nodes(queue.departures.runs)
        simulation = Simulation(
            queue, on_nodes, lengths.of_waiting, lambda run_id: session.get_one(Run, run_id)
        )
        for run_id, start in simulation.starts(mine).items():
            if run_id in mine:
                at = queue.departures.at + timedelta(seconds=start.seconds)
                found[run_id] = ExpectedStart(at, start.is_rough)
    return found


@dataclass(frozen=True)
class _Lengths:
    """How long runs are expected to be on their nodes."""

    session: Read
    measured: Durations
    rough: RoughDurations

    def of_waiting(self, run: Run) -> Length | None:
        """The length of a run that starts; None if it is not known."""
        seconds = self.measured.of(run)
        return self._roughly(run) if seconds is None else Length(seconds, is_rough=False)

    def of_runs_on_nodes(self, runs: Sequence[RunOnNodes]) -> dict[UUID, Length]:
        """The rest of the runs on nodes, where it is known."""
        found = {
            run.run_id: Length(run.seconds_left, is_rough=False)
            for run in runs
            if run.seconds_left is not None
        }
        without = [run.run_id for run in runs if run.run_id not in found]
        for row in self.session.scalars(select(Run).where(Run.id.in_(without))) if without else ():
            if (length := self._roughly(row)) is not None:
                found[row.id] = length
        return found

    def _roughly(self, run: Run) -> Length | None:
        seconds = shorter(self.rough.of(run), remaining_seconds(run))
        return None if seconds is None else Length(seconds, is_rough=True)
