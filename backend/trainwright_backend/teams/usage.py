"""Slot time: how long the runs of a team used their slots, by day and by the person who submitted them.

`runs.metering` adds time as it passes. Time is never subtracted: it stays when the run is deleted. A period that spans
midnight (UTC) is split. Slots that are reserved but not leased count for nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Select, and_, func, select

from trainwright.contracts.api.usage import DailyMemberUsage, DailyUsage, MemberUsage
from trainwright_backend.auth.tables import Account, Membership
from trainwright_backend.core.db import Read, Write, now
from trainwright_backend.core.ids import public_id
from trainwright_backend.teams.tables import SlotTime

SECONDS_AN_HOUR = 3_600.0
HALF_LIFE_DAYS = 7
"""After this many days, use counts half toward a team's place among others."""
REMEMBERED_DAYS = 10 * HALF_LIFE_DAYS
"""Older use is less than a thousandth."""


@dataclass(frozen=True)
class RunSlotHours:
    """Slot-hours of one run on one kind of device."""

    run_id: UUID
    device: str
    slot_hours: float


def add_slot_time(
    session: Write,
    team_id: UUID,
    run_id: UUID,
    user_id: UUID | None,
    device: str,
    slots: int,
    since: datetime,
    until: datetime,
) -> None:
    """Add the time for which a run of ``user_id`` used ``slots``, in the caller's transaction."""
    for day, seconds in seconds_by_day(since, until):
        row = session.insert(SlotTime).values(
            run_id=run_id,
            user_id=user_id,
            day=day,
            device=device,
            team_id=team_id,
            slot_seconds=slots * seconds,
        )
        more = {"slot_seconds": SlotTime.slot_seconds + row.excluded.slot_seconds}
        session.execute(row.on_conflict_do_update(index_elements=["run_id", "day"], set_=more))


def seconds_by_day(since: datetime, until: datetime) -> Iterator[tuple[date, float]]:
    """Split a period into days (UTC), with its seconds on each."""
    since, until = since.astimezone(UTC), until.astimezone(UTC)
    while since < until:
        midnight = datetime.combine(since.date() + timedelta(days=1), time(), UTC)
        end = min(midnight, until)
        yield since.date(), (end - since).total_seconds()
        since = end


def first_day(days: int) -> date:
    """The first of the last ``days`` days (UTC), which include today."""
    return now().date() - timedelta(days=days - 1)


def decayed_usage(session: Read, device: str) -> dict[UUID, float]:
    """Slot-seconds of each team, day by day halved after `HALF_LIFE_DAYS`."""
    today = now().date()
    remembered = (SlotTime.device == device, SlotTime.day > today - timedelta(days=REMEMBERED_DAYS))
    rows = select(SlotTime.team_id, SlotTime.day, func.sum(SlotTime.slot_seconds)).where(*remembered)
    found: dict[UUID, float] = {}
    for team_id, day, seconds in session.execute(rows.group_by(SlotTime.team_id, SlotTime.day)):
        weight = 0.5 ** ((today - day).days / HALF_LIFE_DAYS)
        found[team_id] = found.get(team_id, 0.0) + weight * seconds
    return found


def list_daily_usage(session: Read, team_id: UUID, first: date) -> list[DailyUsage]:
    """The team's use on each day from ``first`` on, oldest first, without days of no use."""
    total = func.sum(SlotTime.slot_seconds)
    rows = session.execute(
        select(SlotTime.day, SlotTime.device, total)
        .where(SlotTime.team_id == team_id, SlotTime.day >= first)
        .group_by(SlotTime.day, SlotTime.device)
        .order_by(SlotTime.day, SlotTime.device)
    )
    return [
        DailyUsage(day=day, device=device, slot_hours=seconds / SECONDS_AN_HOUR)
        for day, device, seconds in rows
    ]


def list_member_usage(session: Read, team_id: UUID, first: date) -> list[MemberUsage]:
    """The use of each person from ``first`` on, most first, also of those who have left the team."""
    total = func.sum(SlotTime.slot_seconds)
    rows = session.execute(
        _by_member(team_id, first, SlotTime.device, total)
        .group_by(*PERSON, SlotTime.device)
        .order_by(total.desc(), SlotTime.user_id)
    )
    return [
        MemberUsage(**_person(*person), device=device, slot_hours=seconds / SECONDS_AN_HOUR)
        for *person, device, seconds in rows
    ]


def list_daily_member_usage(session: Read, team_id: UUID, first: date) -> list[DailyMemberUsage]:
    """The use of each person on each day from ``first`` on, oldest first, without days of no use."""
    total = func.sum(SlotTime.slot_seconds)
    rows = session.execute(
        _by_member(team_id, first, SlotTime.day, SlotTime.device, total)
        .group_by(*PERSON, SlotTime.day, SlotTime.device)
        .order_by(SlotTime.day, SlotTime.device, total.desc(), SlotTime.user_id)
    )
    return [
        DailyMemberUsage(**_person(*person), day=day, device=device, slot_hours=seconds / SECONDS_AN_HOUR)
        for *person, day, device, seconds in rows
    ]


@dataclass(frozen=True)
class RunDay:
    """What one run used on one day: a row of the ledger, with the person."""

    run_id: UUID
    used: DailyMemberUsage


def list_run_days(session: Read, team_id: UUID, first: date) -> list[RunDay]:
    """The use of each run on each day from ``first`` on, oldest first."""
    rows = session.execute(
        _by_member(
            team_id, first, SlotTime.run_id, SlotTime.day, SlotTime.device, SlotTime.slot_seconds
        ).order_by(SlotTime.day, SlotTime.run_id)
    )
    return [
        RunDay(
            run_id,
            DailyMemberUsage(
                **_person(*person), day=day, device=device, slot_hours=seconds / SECONDS_AN_HOUR
            ),
        )
        for *person, run_id, day, device, seconds in rows
    ]


PERSON = (SlotTime.user_id, Account.name, Membership.role, Account.service_of)


def _by_member(team_id: UUID, first: date, *columns: Any) -> Select[Any]:
    in_team = and_(Membership.user_id == SlotTime.user_id, Membership.team_id == team_id)
    return (
        select(*PERSON, *columns)
        .outerjoin(Account, Account.id == SlotTime.user_id)
        .outerjoin(Membership, in_team)
        .where(SlotTime.team_id == team_id, SlotTime.day >= first)
    )


def _person(
    user_id: UUID | None, name: str | None, role: str | None, service_of: UUID | None
) -> dict[str, Any]:
    known = None if user_id is None or name is None else public_id("user", user_id)
    return {
        "user": known,
        "name": name or "",
        "in_team": role is not None,
        "service": service_of is not None,
    }


def list_top_runs(session: Read, team_id: UUID, first: date, count: int) -> list[RunSlotHours]:
    """The ``count`` runs with the most use from ``first`` on, most first."""
    total = func.sum(SlotTime.slot_seconds)
    rows = session.execute(
        select(SlotTime.run_id, SlotTime.device, total)
        .where(SlotTime.team_id == team_id, SlotTime.day >= first)
        .group_by(SlotTime.run_id, SlotTime.device)
        .order_by(total.desc(), SlotTime.run_id)
        .limit(count)
    )
    return [RunSlotHours(run_id, device, seconds / SECONDS_AN_HOUR) for run_id, device, seconds in rows]
