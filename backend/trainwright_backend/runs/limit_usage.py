"""What the runs of a team, and of each of its members, use of their limits.

Hours are those of the ledger of slot time for the current month (UTC), plus the time since a run on nodes was last metered. So a
limit of hours is noticed in the sweep after it is reached, not when the run is metered next.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from typing import Self
from uuid import UUID

from sqlalchemy import Select, func, select

from trainwright.contracts.api.limits import MemberLimits, MonthlyHours, RunLimits, TeamLimits
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.run_state import RunState
from trainwright_backend.core.db import Read, Write, now
from trainwright_backend.core.errors import AppError, Invalid
from trainwright_backend.runs.tables import Placement, PlacementSlot, Run
from trainwright_backend.teams.limits import (
    all_member_limits,
    all_team_limits,
    member_limits,
    team_limits,
    why_never_fits_member,
)
from trainwright_backend.teams.slot_quota import DEVICES, why_never_fits
from trainwright_backend.teams.tables import SlotTime
from trainwright_backend.teams.team_locks import lock_team
from trainwright_backend.teams.usage import SECONDS_AN_HOUR

HOUR_NOUNS = {"cuda": "GPU-hours", "cpu": "CPU slot-hours"}
FORECAST_DAYS = 7
Owner = tuple[UUID, UUID | None]
"""A team and one of its members, or None for the whole team."""


@dataclass
class RunUse:
    """The use of a team's or a member's runs."""

    hours: dict[str, float] = field(default_factory=lambda: dict.fromkeys(DEVICES, 0.0))
    """Slot-hours of this month, by device."""
    slots: dict[str, int] = field(default_factory=lambda: dict.fromkeys(DEVICES, 0))
    """Slots on nodes, by device."""
    running: int = 0
    queued: int = 0


@dataclass(frozen=True)
class MeasuredLimits:
    """The limits of teams and of their members, and what their runs use of them, in one snapshot."""

    teams: Mapping[UUID, TeamLimits]
    """Those that have any."""
    members: Mapping[UUID, Mapping[UUID, MemberLimits]]
    """Limits of members, by team and account."""
    used: dict[Owner, RunUse]

    @classmethod
    def measure(cls, session: Read, team_ids: Collection[UUID] | None = None) -> Self:
        """The limits of some teams, or of all."""
        teams, members = all_team_limits(session, team_ids), all_member_limits(session, team_ids)
        limited = teams.keys() | members.keys()
        return cls(teams, members, measure_use(session, limited) if limited else {})

    @property
    def team_ids(self) -> set[UUID]:
        """The teams that have limits, or a member who has."""
        return {*self.teams, *self.members}

    @property
    def teams_with_storage_limits(self) -> set[UUID]:
        """The teams whose total storage, or a member's, is limited."""
        teams = {team_id for team_id, limits in self.teams.items() if limits.storage_bytes is not None}
        members = self.members.items()
        return teams | {
            team_id
            for team_id, team in members
            if any(limits.storage_bytes is not None for limits in team.values())
        }

    def use_of(self, team_id: UUID, user_id: UUID | None) -> RunUse:
        """What a team, or a member, uses."""
        return self.used.setdefault((team_id, user_id), RunUse())

    def of_run(self, run: Run) -> Iterator[tuple[RunLimits, RunUse, str]]:
        """The limits that hold for a run, what is used of them, and whose they are: `your team`, or a name."""
        if (team := self.teams.get(run.team_id)) is not None:
            yield team, self.use_of(run.team_id, None), "your team"
        own = None if run.created_by is None else self.members.get(run.team_id, {}).get(run.created_by)
        if own is not None:
            yield own, self.use_of(run.team_id, run.created_by), run.created_by_name or "the submitter"

    def why_out_of_hours(self, run: Run) -> str | None:
        """Why a run has no hours left this month; None if it has."""
        reasons = (hours_used_up(limits, use, run.device, whose) for limits, use, whose in self.of_run(run))
        return next((reason for reason in reasons if reason is not None), None)


def month_start(day: date) -> date:
    """The first day of a month."""
    return day.replace(day=1)


def measure_use(session: Read, team_ids: Collection[UUID]) -> dict[Owner, RunUse]:
    """What the runs of each team use, and those of each of its members."""
    found: dict[Owner, RunUse] = {(team_id, None): RunUse() for team_id in team_ids}

    def owners(team_id: UUID, user_id: UUID | None) -> list[RunUse]:
        keys: list[Owner] = [(team_id, None)] + ([(team_id, user_id)] if user_id is not None else [])
        return [found.setdefault(key, RunUse()) for key in keys]

    at = now()
    for team_id, user_id, device, seconds in session.execute(_monthly_seconds(team_ids, at.date())):
        for use in owners(team_id, user_id):
            use.hours[device] = use.hours.get(device, 0.0) + seconds / SECONDS_AN_HOUR
    for row in session.execute(_on_nodes(team_ids)):
        for use in owners(row.team_id, row.created_by):
            use.running += 1
            use.slots[row.device] += row.slots
            use.hours[row.device] += row.slots * unmetered_seconds(row.metered_until, at) / SECONDS_AN_HOUR
    for team_id, user_id, count in session.execute(_queued(team_ids)):
        for use in owners(team_id, user_id):
            use.queued += count
    return found


def unmetered_seconds(metered_until: datetime | None, at: datetime) -> float:
    """The part of this month for which a run on nodes has not been metered yet."""
    if metered_until is None:
        return 0.0
    first = datetime.combine(month_start(at.date()), time(), UTC)
    return max((at - max(metered_until, first)).total_seconds(), 0.0)


def hours_used_up(limits: RunLimits, use: RunUse, device: str, whose: str) -> str | None:
    """A sentence if the month's hours of a device are used up. ``whose``: `your team`, or a name."""
    limit = limits.hours_of(device)
    if limit is None or use.hours[device] < limit:
        return None
    month = f"{now():%B %Y}"
    return f"{whose} used {use.hours[device]:,.1f} of {limit:,g} {HOUR_NOUNS[device]} of {month} (UTC)"


def check_hours(session: Read, run: Run) -> None:
    """Refuse to resume a run whose hours are used up.

    Raises:
        AppError: 403 ``quota_exceeded``.
    """
    why = MeasuredLimits.measure(session, {run.team_id}).why_out_of_hours(run)
    if why is not None:
        raise AppError("quota_exceeded", 403, f"The run stays paused: {why}. Ask for a higher limit.")


def check_slots(session: Read, team_id: UUID, user_id: UUID | None, spec: RunSpec) -> None:
    """Refuse more slots than the team, or its member, may use at once.

    Raises:
        Invalid: at ``resources.slots_per_node`` or ``resources.nodes``.
    """
    resources = spec.resources
    device = resources.device.value
    why = why_never_fits(session, team_id, device, resources.ranks)
    if why is None and user_id is not None:
        why = why_never_fits_member(session, team_id, user_id, device, resources.ranks)
    if why is not None:
        field = "slots_per_node" if resources.nodes == 1 else "nodes"
        raise Invalid.at(f"resources.{field}", why, getattr(resources, field))


def check_queued_runs(session: Write, team_id: UUID, user_id: UUID) -> None:
    """Refuse a submission if the team, or the person, has as many waiting runs as allowed.

    Where there is such a limit, it locks the team, so that two submissions cannot both take the last place.

    Raises:
        AppError: 403 ``quota_exceeded``.
    """
    team, own = team_limits(session, team_id), member_limits(session, team_id, user_id)
    if team.queued_runs is None and own.queued_runs is None:
        return
    lock_team(session, team_id)
    used = measure_use(session, {team_id})
    for limits, use, whose in (
        (team, used[(team_id, None)], "Your team has"),
        (own, used.get((team_id, user_id), RunUse()), "You have"),
    ):
        if limits.queued_runs is not None and use.queued >= limits.queued_runs:
            detail = (
                f"{whose} {use.queued} waiting runs, and {limits.queued_runs} are allowed. Wait until one has started, or "
                "cancel one."
            )
            raise AppError("quota_exceeded", 403, detail)


def monthly_hours(limits: RunLimits, use: RunUse, recent: Mapping[str, float]) -> list[MonthlyHours]:
    """The month's hours of a team, or of a member, by device, with their forecast from `recent_hours`."""
    today = now().date()
    return [
        MonthlyHours(
            device=device,
            limit=limits.hours_of(device),
            used=use.hours[device],
            forecast=forecast(use.hours[device], recent.get(device, 0.0), today),
        )
        for device in DEVICES
    ]


def recent_hours(session: Read, team_id: UUID) -> dict[UUID | None, dict[str, float]]:
    """Slot-hours of the last `FORECAST_DAYS` days, by device: of each member, and of the whole team (None)."""
    rows = (
        select(SlotTime.user_id, SlotTime.device, func.sum(SlotTime.slot_seconds))
        .where(SlotTime.team_id == team_id, SlotTime.day > now().date() - timedelta(days=FORECAST_DAYS))
        .group_by(SlotTime.user_id, SlotTime.device)
    )
    found: dict[UUID | None, dict[str, float]] = {None: {}}
    for user_id, device, seconds in session.execute(rows):
        for owner in {None, user_id}:
            hours = found.setdefault(owner, {})
            hours[device] = hours.get(device, 0.0) + seconds / SECONDS_AN_HOUR
    return found


def forecast(used: float, recent: float, today: date) -> float:
    """Hours at the end of the month: those used, and the daily mean of the last `FORECAST_DAYS` days for each later day."""
    next_month = (month_start(today) + timedelta(days=31)).replace(day=1)
    return used + recent / FORECAST_DAYS * ((next_month - today).days - 1)


def _monthly_seconds(team_ids: Collection[UUID], today: date) -> Select[UUID, UUID | None, str, float]:
    return (
        select(SlotTime.team_id, SlotTime.user_id, SlotTime.device, func.sum(SlotTime.slot_seconds))
        .where(SlotTime.team_id.in_(team_ids), SlotTime.day >= month_start(today))
        .group_by(SlotTime.team_id, SlotTime.user_id, SlotTime.device)
    )


def _on_nodes(team_ids: Collection[UUID]) -> Select[UUID, UUID | None, str, int, datetime | None]:
    placed = select(Placement.run_id).join(PlacementSlot, PlacementSlot.placement_id == Placement.id)
    columns = (Run.team_id, Run.created_by, Run.device, Run.slots, Run.metered_until)
    return select(*columns).where(Run.team_id.in_(team_ids), Run.id.in_(placed))


def _queued(team_ids: Collection[UUID]) -> Select[UUID, UUID | None, int]:
    """Waiting runs that are not on nodes."""
    placed = select(Placement.run_id).join(PlacementSlot, PlacementSlot.placement_id == Placement.id)
    waiting = (Run.team_id.in_(team_ids), Run.state == RunState.QUEUED, Run.id.not_in(placed))
    return (
        select(Run.team_id, Run.created_by, func.count())
        .where(*waiting)
        .group_by(Run.team_id, Run.created_by)
    )
