"""Slot time: how long the runs of a team used their slots, by day.

`runs.metering` adds time as it passes. Time is never subtracted: it stays when the run is deleted. A period that spans
midnight (UTC) is split. Slots that are reserved but not leased count for nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.dialects import postgresql, sqlite

from trainwright.contracts.api.usage import DailyUsage
from trainwright_backend.core.db import Read, Write
from trainwright_backend.teams.tables import SlotTime

SECONDS_AN_HOUR = 3600.0


@dataclass(frozen=True)
class RunSlotHours:
    """Slot-hours of one run on one kind of device."""

    run_id: UUID
    device: str
    slot_hours: float


def add_slot_time(
    session: Write, team_id: UUID, run_id: UUID, device: str, slots: int, since: datetime, until: datetime
) -> None:
    """Add the time for which a run used ``slots``, in the caller's transaction."""
    insert = sqlite.insert if session.get_bind().dialect.name == "sqlite" else postgresql.insert
    for day, seconds in seconds_by_day(since, until):
        row = insert(SlotTime).values(
            run_id=run_id, day=day, device=device, team_id=team_id, slot_seconds=slots * seconds
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
