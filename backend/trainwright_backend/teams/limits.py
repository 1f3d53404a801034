"""Limits of a team and of its members: reading and changing them. `runs.limit_usage` measures what they limit.

A change that counts the team's runs against a limit locks the team first (`team_locks`), so that two of them cannot both take the
last place.
"""

from collections.abc import Collection, Mapping
from uuid import UUID

from sqlalchemy import delete, select

from trainwright.contracts.api.limits import MemberLimits, TeamLimits
from trainwright.contracts.api.people import Role
from trainwright.contracts.api.queue import HIGHEST_PRIORITY, Priority
from trainwright_backend.auth.tables import Account, Membership
from trainwright_backend.core.db import Read, Write
from trainwright_backend.core.errors import Forbidden
from trainwright_backend.core.ids import parse_id, unknown
from trainwright_backend.teams import tables
from trainwright_backend.teams.slot_quota import count_slots

RANKS = {priority: rank for rank, priority in enumerate(Priority)}


def team_limits(session: Read, team_id: UUID) -> TeamLimits:
    """The limits of a team."""
    return _team_contract(session.get(tables.TeamLimits, team_id))


def all_team_limits(session: Read, team_ids: Collection[UUID] | None = None) -> dict[UUID, TeamLimits]:
    """The limits of the teams that have any."""
    rows = select(tables.TeamLimits)
    if team_ids is not None:
        rows = rows.where(tables.TeamLimits.team_id.in_(team_ids))
    return {row.team_id: _team_contract(row) for row in session.scalars(rows)}


def all_member_limits(
    session: Read, team_ids: Collection[UUID] | None = None
) -> dict[UUID, Mapping[UUID, MemberLimits]]:
    """The limits of members, by team and account."""
    rows = select(tables.MemberLimits)
    if team_ids is not None:
        rows = rows.where(tables.MemberLimits.team_id.in_(team_ids))
    found: dict[UUID, dict[UUID, MemberLimits]] = {}
    for row in session.scalars(rows):
        found.setdefault(row.team_id, {})[row.user_id] = _member_contract(row)
    return dict(found)


def set_team_limits(session: Write, team_id: UUID, limits: TeamLimits) -> None:
    """Replace the limits of a team. Running runs above a new one go on, unless it is of hours or storage."""
    session.merge(tables.TeamLimits(team_id=team_id, **limits.model_dump(mode="json")))
    session.flush()


def member_limits(session: Read, team_id: UUID, user_id: UUID) -> MemberLimits:
    """The limits of a member."""
    return _member_contract(session.get(tables.MemberLimits, (team_id, user_id)))


def set_member_limits(session: Write, team_id: UUID, member: str, limits: MemberLimits) -> UUID:
    """Replace the limits of a member, and return the account's id.

    Raises:
        NotFound: the team has no such member.
    """
    user_id = member_id(session, team_id, member)
    if limits == MemberLimits():
        mine = (tables.MemberLimits.team_id == team_id, tables.MemberLimits.user_id == user_id)
        session.execute(delete(tables.MemberLimits).where(*mine))
    else:
        row = tables.MemberLimits(team_id=team_id, user_id=user_id, **limits.model_dump(mode="json"))
        session.merge(row)
    session.flush()
    return user_id


def member_id(session: Read, team_id: UUID, member: str) -> UUID:
    """The account of a member.

    Raises:
        NotFound: the team has no such member.
    """
    user_id = parse_id("user", member)
    if session.get(Membership, (team_id, user_id)) is None:
        raise unknown("user", member)
    return user_id


def names_of_members(session: Read, team_id: UUID) -> dict[UUID, str]:
    """The members of a team, by name."""
    rows = (
        select(Account.id, Account.name)
        .join(Membership, Membership.user_id == Account.id)
        .where(Membership.team_id == team_id)
        .order_by(Account.name, Account.id)
    )
    return {row.id: row.name for row in session.execute(rows)}


def check_priority(session: Read, team_id: UUID, user_id: UUID, role: Role, priority: Priority) -> None:
    """Refuse a priority that the person, or their role, cannot assign.

    Raises:
        Forbidden: ``priority_too_high``.
    """
    limits, own = team_limits(session, team_id), member_limits(session, team_id, user_id).highest_priority
    highest = {Role.EDITOR: limits.editor_priority, Role.OWNER: limits.owner_priority}.get(
        role, HIGHEST_PRIORITY[role]
    )
    if own is not None and RANKS[own] < RANKS[highest]:
        highest = own
    if RANKS[priority] > RANKS[highest]:
        detail = (
            f"priority {priority} is higher than you can assign in this team as {role}. Use {highest}, or ask an owner of the "
            "team."
        )
        raise Forbidden("priority_too_high", detail)


def why_never_fits_member(session: Read, team_id: UUID, user_id: UUID, device: str, slots: int) -> str | None:
    """Why a member's run on ``slots`` slots could not even start alone, and what to do; None if it could."""
    limit = member_limits(session, team_id, user_id).slots_of(device)
    if limit is None or slots <= limit:
        return None
    return (
        f"This run needs {count_slots(device, slots)}; you may use {count_slots(device, limit)} at once. Request fewer, or ask "
        "an owner of the team to raise your limit."
    )


def _team_contract(row: tables.TeamLimits | None) -> TeamLimits:
    return TeamLimits() if row is None else TeamLimits.model_validate(_values(row, TeamLimits))


def _member_contract(row: tables.MemberLimits | None) -> MemberLimits:
    return MemberLimits() if row is None else MemberLimits.model_validate(_values(row, MemberLimits))


def _values(row: object, contract: type[TeamLimits | MemberLimits]) -> dict[str, object]:
    return {name: getattr(row, name) for name in contract.model_fields}
