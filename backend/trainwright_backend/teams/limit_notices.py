"""Notices that a team or a member has reached a share of a limit.

Each is stored once a month for each value of the limit, so a raised limit gives new ones.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date
from uuid import UUID

from sqlalchemy import select

from trainwright.contracts.api.limits import NOTICE_PERCENTS, LimitedResource
from trainwright.contracts.api.limits import LimitNotice as LimitNoticeOut
from trainwright.sizes import format_bytes
from trainwright_backend.auth.tables import Account
from trainwright_backend.core.db import Read, Write
from trainwright_backend.teams.tables import LimitNotice
from trainwright_backend.teams.team_locks import lock_team

MAX_NOTICES = 100
NOUNS = {LimitedResource.GPU_HOURS: "GPU-hours", LimitedResource.CPU_HOURS: "CPU slot-hours"}


@dataclass(frozen=True)
class Level:
    """How much of a limit is used."""

    user_id: UUID | None
    """The member whose own limit it is."""
    resource: LimitedResource
    limit: float
    used: float

    def percents(self) -> list[int]:
        """The shares that are reached."""
        return [percent for percent in NOTICE_PERCENTS if 100 * self.used >= percent * self.limit]


def due_notices(
    session: Read, month: date, levels: Mapping[UUID, Collection[Level]]
) -> list[tuple[UUID, Level, int]]:
    """The team, level and percentage of each notice that is not stored yet. ``levels``: by team."""
    reached = [
        (team_id, level, percent)
        for team_id, of_team in levels.items()
        for level in of_team
        for percent in level.percents()
    ]
    if not reached:
        return []
    teams = {team_id for team_id, _, _ in reached}
    stored = select(LimitNotice).where(LimitNotice.team_id.in_(teams), LimitNotice.month == month)
    known = {
        (row.team_id, row.user_id, row.resource, row.percent, row.limit) for row in session.scalars(stored)
    }
    return [
        (team_id, level, percent)
        for team_id, level, percent in reached
        if (team_id, level.user_id, level.resource, percent, level.limit) not in known
    ]


def add_notices(session: Write, team_id: UUID, month: date, levels: Collection[Level]) -> list[LimitNotice]:
    """Store the notices that are new, and return them."""
    lock_team(session, team_id)
    added = [
        LimitNotice(
            team_id=team_id,
            user_id=level.user_id,
            resource=level.resource,
            month=month,
            percent=percent,
            limit=level.limit,
        )
        for _, level, percent in due_notices(session, month, {team_id: levels})
    ]
    session.add_all(added)
    session.flush()
    return added


def list_notices(session: Read, team_id: UUID, month: date) -> list[LimitNoticeOut]:
    """The team's notices of a month, newest first."""
    rows = session.execute(
        select(LimitNotice, Account.name)
        .outerjoin(Account, Account.id == LimitNotice.user_id)
        .where(LimitNotice.team_id == team_id, LimitNotice.month == month)
        .order_by(LimitNotice.id.desc())
        .limit(MAX_NOTICES)
    )
    return [show_notice(notice, name) for notice, name in rows]


def show_notice(notice: LimitNotice, member: str | None) -> LimitNoticeOut:
    """A notice as the API returns it. ``member``: the name of its member."""
    resource = LimitedResource(notice.resource)
    return LimitNoticeOut(
        time=notice.time,
        resource=resource,
        member=member,
        percent=notice.percent,
        month=notice.month,
        sentence=_sentence(resource, notice, member),
    )


def _sentence(resource: LimitedResource, notice: LimitNotice, member: str | None) -> str:
    whose = "The team" if member is None else member
    if resource is LimitedResource.STORAGE:
        amount = format_bytes(int(notice.limit))
        then = "; runs whose next checkpoints do not fit are paused" if notice.percent == 100 else ""
        return f"{whose} stores {notice.percent} % of {amount}{then}."
    then = "; its runs are paused" if notice.percent == 100 else ""
    amount = f"{notice.limit:,g} {NOUNS[resource]} of {notice.month:%B %Y} (UTC)"
    return f"{whose} used {notice.percent} % of {amount}{then}."
