"""How long the runs of a team have occupied their slots, by day.

Time is added as it passes, by whoever knows the runs (`runs.charging`), and never taken away: what was used stays used
when the run is deleted. A stretch over midnight (UTC) is cut there. What was reserved but not occupied is no use.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.dialects import postgresql, sqlite

from trainwright.contracts.api.usage import UsedDay
from trainwright_backend.core.db import Read, Write
from trainwright_backend.teams.tables import SlotTime

SECONDS_AN_HOUR = 3600.0


@dataclass(frozen=True)
class UsedTime:
    """Slot-hours of one run on one kind of device."""

    run_id: UUID
    device: str
    slot_hours: float


def add_slot_time(
    session: Write, team_id: UUID, run_id: UUID, device: str, slots: int, since: datetime, until: datetime
) -> None:
    """Count that the run occupied ``slots`` from ``since`` to ``until``, in the caller's transaction."""
    insert = sqlite.insert if session.get_bind().dialect.name == "sqlite" else postgresql.insert
    for day, seconds in seconds_by_day(since, until):
        row = insert(SlotTime).values(
            run_id=run_id, day=day, device=device, team_id=team_id, slot_seconds=slots * seconds
        )
        more = {"slot_seconds": SlotTime.slot_seconds + row.excluded.slot_seconds}
        session.execute(row.on_conflict_do_update(index_elements=["run_id", "day"], set_=more))


def seconds_by_day(since: datetime, until: datetime) -> Iterator[tuple[date, float]]:
    """The days (UTC) that a stretch of time touches, and its seconds on each."""
    since, until = since.astimezone(UTC), until.astimezone(UTC)
    while since < until:
        midnight = datetime.combine(since.date() + timedelta(days=1), time(), UTC)
        end = min(midnight, until)
        yield since.date(), (end - since).total_seconds()
        since = end


def days_used(session: Read, team_id: UUID, first: date) -> list[UsedDay]:
    """What the team used on each day from ``first`` on, oldest first; days without use are left out."""
    total = func.sum(SlotTime.slot_seconds)
    rows = session.execute(
        select(SlotTime.day, SlotTime.device, total)
        .where(SlotTime.team_id == team_id, SlotTime.day >= first)
        .group_by(SlotTime.day, SlotTime.device)
        .order_by(SlotTime.day, SlotTime.device)
    )
    return [
        UsedDay(day=day, device=device, slot_hours=seconds / SECONDS_AN_HOUR) for day, device, seconds in rows
    ]


def most_used(session: Read, team_id: UUID, first: date, count: int) -> list[UsedTime]:
    """The ``count`` runs that used most from ``first`` on, the greatest first."""
    total = func.sum(SlotTime.slot_seconds)
    rows = session.execute(
        select(SlotTime.run_id, SlotTime.device, total)
        .where(SlotTime.team_id == team_id, SlotTime.day >= first)
        .group_by(SlotTime.run_id, SlotTime.device)
        .order_by(total.desc(), SlotTime.run_id)
        .limit(count)
    )
    return [UsedTime(run_id, device, seconds / SECONDS_AN_HOUR) for run_id, device, seconds in rows]
