"""Whether the limits of its team and of its submitter let a waiting run start, in one round of placement.

The slots of a team are not counted here, but by `teams.slot_quota`.
"""

from collections.abc import Collection, Mapping
from typing import Self
from uuid import UUID

from trainwright.contracts.api.limits import MemberLimits, RunLimits, TeamLimits
from trainwright_backend.checkpoints.total_storage import why_no_space
from trainwright_backend.core.db import Read
from trainwright_backend.runs.limit_use import Owner, RunUse, hours_used_up, measure_use
from trainwright_backend.runs.tables import Run
from trainwright_backend.teams.limits import all_member_limits, all_team_limits
from trainwright_backend.teams.slot_quota import count_slots


class LimitGate:
    """The limits of teams and members, and how much of them is used, including the runs placed so far in this round."""

    def __init__(
        self,
        session: Read,
        teams: Mapping[UUID, TeamLimits],
        members: Mapping[UUID, Mapping[UUID, MemberLimits]],
        used: dict[Owner, RunUse],
    ) -> None:
        self._session, self._teams, self._members, self._used = session, teams, members, used
        self._wait_for_slots: set[tuple[UUID, UUID | None, str]] = set()

    @classmethod
    def load(cls, session: Read, team_ids: Collection[UUID]) -> Self:
        """The gate for the runs of some teams."""
        teams, members = all_team_limits(session, team_ids), all_member_limits(session, team_ids)
        limited = teams.keys() | members.keys()
        return cls(session, teams, members, measure_use(session, limited) if limited else {})

    def why_waits(self, run: Run) -> str | None:
        """What the run waits for; None if no limit holds it back."""
        team = self._teams.get(run.team_id)
        if team is not None and (reason := self._held_by_team(run, team)):
            return reason
        own = None if run.created_by is None else self._members.get(run.team_id, {}).get(run.created_by)
        if own is not None and (reason := self._held_by_member(run, own)):
            return reason
        return None if team is None else why_no_space(self._session, run)

    def admit(self, run: Run) -> None:
        """Count a run that is placed."""
        if run.team_id in self._teams or run.team_id in self._members:
            for use in (self._use(run.team_id, None), self._use(run.team_id, run.created_by)):
                use.running += 1
                use.slots[run.device] += run.slots

    def _held_by_team(self, run: Run, limits: TeamLimits) -> str | None:
        use = self._use(run.team_id, None)
        return _too_many_runs(limits, use, "your team") or hours_used_up(limits, use, run.device, "your team")

    def _held_by_member(self, run: Run, limits: MemberLimits) -> str | None:
        use, name = self._use(run.team_id, run.created_by), run.created_by_name or "the submitter"
        return (
            _too_many_runs(limits, use, name)
            or self._too_many_slots(run, limits, use, name)
            or hours_used_up(limits, use, run.device, name)
        )

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

    def _use(self, team_id: UUID, user_id: UUID | None) -> RunUse:
        return self._used.setdefault((team_id, user_id), RunUse())


def _too_many_runs(limits: RunLimits, use: RunUse, whose: str) -> str | None:
    if limits.concurrent_runs is None or use.running < limits.concurrent_runs:
        return None
    return f"{whose} may have {limits.concurrent_runs} runs on nodes at once, and has {use.running}"
