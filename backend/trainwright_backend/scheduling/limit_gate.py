"""Whether the limits of its team and of its submitter let a waiting run start, in one round of placement.

The slots of a team are not counted here, but by `teams.slot_quota`.
"""

from collections.abc import Sequence
from typing import Self
from uuid import UUID

from trainwright.contracts.api.limits import MemberLimits, RunLimits
from trainwright_backend.checkpoints.total_storage import MeasuredStorage, checkpoint_reserves
from trainwright_backend.core.db import Read
from trainwright_backend.runs.limit_usage import MeasuredLimits, RunUse, hours_used_up
from trainwright_backend.runs.tables import Run
from trainwright_backend.scheduling.occupants import RunOnNodes
from trainwright_backend.teams.slot_quota import count_slots


class LimitGate:
    """The limits of teams and members, and how much of them is used, including the runs placed so far in this round."""

    def __init__(self, measured: MeasuredLimits, storage: MeasuredStorage, reserves: dict[UUID, int]) -> None:
        self._measured = measured
        self._storage, self._reserves = storage, reserves
        self._wait_for_slots: set[tuple[UUID, UUID | None, str]] = set()

    @classmethod
    def load(cls, session: Read, runs: Sequence[Run]) -> Self:
        """The gate for some waiting runs. It sends no statement later, and the number of statements does not depend on the runs."""
        measured = MeasuredLimits.measure(session, {run.team_id for run in runs})
        limited = measured.teams_with_storage_limits
        reserves = checkpoint_reserves(session, [run for run in runs if run.team_id in limited])
        return cls(measured, MeasuredStorage.measure(session, limited), reserves)

    def why_waits(self, run: Run) -> str | None:
        """What the run waits for; None if no limit holds it back."""
        for limits, use, whose in self._measured.of_run(run):
            reason = _too_many_runs(limits, use, whose)
            if reason is None and isinstance(limits, MemberLimits):
                reason = self._too_many_slots(run, limits, use, whose)
            if reason is None:
                reason = hours_used_up(limits, use, run.device, whose)
            if reason is not None:
                return reason
        return self._storage.why_no_space(run, self._reserves.get(run.id, 0))

    def admit(self, run: Run) -> None:
        """Count a run that is placed."""
        self._count(run.team_id, run.created_by, run.device, 1, run.slots)
        for storage, _ in self._storage.of_run(run):
            storage.reserves[run.id] = self._reserves.get(run.id, 0)

    def release(self, run: RunOnNodes, device: str) -> None:
        """Count a run no longer that has left its nodes."""
        self._count(run.team_id, run.created_by, device, -1, -run.slots)
        for owner in {None, run.created_by}:
            needed = self._storage.of(run.team_id, owner).reserves.pop(run.run_id, 0)
            self._reserves[run.run_id] = needed

    def start_round(self) -> None:
        """Forget which members' runs wait for slots."""
        self._wait_for_slots.clear()

    def _count(self, team_id: UUID, user_id: UUID | None, device: str, runs: int, slots: int) -> None:
        for owner in {None, user_id}:
            use = self._measured.use_of(team_id, owner)
            use.running += runs
            use.slots[device] += slots

    def _too_many_slots(self, run: Run, limits: MemberLimits, use: RunUse, name: str) -> str | None:
        """Also if an earlier run of the member waits for slots, which this one would take."""
        limit, key = limits.slots_of(run.device), (run.team_id, run.created_by, run.device)
        if limit is None:
            return None
        if key not in self._wait_for_slots and use.slots[run.device] + run.slots <= limit:
            return None
        self._wait_for_slots.add(key)
        needs = f"needs {count_slots(run.device, run.slots)}"
        return f"{needs}; {name} uses {use.slots[run.device]} of {limit} at once"


def _too_many_runs(limits: RunLimits, use: RunUse, whose: str) -> str | None:
    if limits.concurrent_runs is None or use.running < limits.concurrent_runs:
        return None
    runs = "1 run" if limits.concurrent_runs == 1 else f"{limits.concurrent_runs} runs"
    return f"{whose} may have {runs} on nodes at once, and has {use.running}"
