"""The members of a team and their roles.

A team always has an owner. Every change locks the team's row first, and then reads what the caller and the others are: of
two owners who demote each other at the same time, the second is refused.

Rights follow from the membership at each request. So a removed person's API keys, which belong to the person and not to the
team, stop working for this team at once, and their open streams end within seconds. Their runs continue unless the owner has
them cancelled, and what they created stays in the team. Invitations that they created are revoked, since their links would let
them in again.
"""

from uuid import UUID

from sqlalchemy import delete, func, select, update

from trainwright.contracts.api.people import LinkPurpose, Member, Role
from trainwright_backend.auth.tables import Account, Membership, OneTimeLink
from trainwright_backend.core.db import Read, Write
from trainwright_backend.core.errors import Conflict, Forbidden, Invalid
from trainwright_backend.core.ids import parse_id, public_id, unknown
from trainwright_backend.teams.team_locks import lock_team


def list_members(session: Read, team_id: UUID) -> list[Member]:
    """The members of a team, by name."""
    rows = session.execute(
        select(Account, Membership.role)
        .join(Membership, Membership.user_id == Account.id)
        .where(Membership.team_id == team_id)
        .order_by(Account.name, Account.email)
    )
    return [_to_response(account, Role(role)) for account, role in rows]


def change_role(session: Write, team_id: UUID, caller_id: UUID, member: str, role: Role) -> Member:
    """Give a member another role. Owners can also change their own.

    Raises:
        Forbidden: the caller is no longer an owner.
        NotFound: the team has no such member.
        Conflict: the team would have no owner.
        Invalid: a service account cannot be an owner.
    """
    membership = _locked_for_owner(session, team_id, caller_id, member)
    account = session.get_one(Account, membership.user_id)
    if account.is_service and role is Role.OWNER:
        raise Invalid.at("role", "A service account cannot be an owner. Make it a viewer or an editor.", role)
    if role is not Role.OWNER:
        _require_other_owner(session, membership, f"{account.name} cannot become {role}")
    if membership.role == Role.OWNER and role is not Role.OWNER:
        _revoke_invitations_by(session, membership)
    session.change(
        update(Membership)
        .where(Membership.team_id == team_id, Membership.user_id == membership.user_id)
        .values(role=role, by_groups=False)
    )
    return _to_response(account, role)


def remove_member(session: Write, team_id: UUID, caller_id: UUID, member: str) -> None:
    """Remove a person from the team.

    Raises:
        Forbidden: the caller is no longer an owner.
        NotFound: the team has no such member.
        Conflict: they are the last owner, or a service account.
    """
    membership = _locked_for_owner(session, team_id, caller_id, member)
    account = session.get_one(Account, membership.user_id)
    if account.is_service:
        detail = f"{account.name} is a service account of this team. Delete it instead, which also revokes its keys."
        raise Conflict("service_account", detail)
    session.deleted_names = (account.name,)
    _remove(session, membership, f"{account.name} cannot be removed")


def leave(session: Write, team_id: UUID, caller_id: UUID) -> None:
    """Remove the caller from the team.

    Raises:
        Conflict: they are the last owner, or a service account.
    """
    lock_team(session, team_id)
    if session.get_one(Account, caller_id).is_service:
        raise Conflict("service_account", "A service account cannot leave its team. An owner can delete it.")
    membership = session.get(Membership, (team_id, caller_id), populate_existing=True)
    if membership is not None:
        _remove(session, membership, "You cannot leave")


def follow_groups(session: Write, team_id: UUID, user_id: UUID, role: Role | None) -> None:
    """Give a person the role that their groups at the identity provider give; None removes them.

    A membership that an owner gave or changed stays as it is, and so does that of the last owner.
    """
    lock_team(session, team_id)
    membership = session.get(Membership, (team_id, user_id), populate_existing=True)
    if membership is None:
        if role is not None:
            session.add(Membership(team_id=team_id, user_id=user_id, role=role, by_groups=True))
            session.flush()
        return
    if not membership.by_groups or membership.role == role or is_last_owner(session, membership):
        return
    if role is None:
        _remove(session, membership, "")
        return
    if membership.role == Role.OWNER:
        _revoke_invitations_by(session, membership)
    membership.role = role
    session.flush()


def is_last_owner(session: Read, membership: Membership) -> bool:
    """Whether the team, which is locked, would have no owner without this one."""
    if membership.role != Role.OWNER:
        return False
    owners = select(func.count()).where(
        Membership.team_id == membership.team_id, Membership.role == Role.OWNER
    )
    return session.scalar(owners) == 1


def _remove(session: Write, membership: Membership, refused: str) -> None:
    _require_other_owner(session, membership, refused)
    _revoke_invitations_by(session, membership)
    session.change(
        delete(Membership).where(
            Membership.team_id == membership.team_id, Membership.user_id == membership.user_id
        )
    )


def lock_for_owner(session: Write, team_id: UUID, caller_id: UUID) -> None:
    """Lock the team's memberships, and check that the caller is still an owner.

    Raises:
        Forbidden: the caller lost the role after the request was permitted.
    """
    lock_team(session, team_id)
    caller = session.get(Membership, (team_id, caller_id), populate_existing=True)
    if caller is None or caller.role != Role.OWNER:
        raise Forbidden("role_too_low", "You are no longer an owner of this team. Ask one of its owners.")


def _locked_for_owner(session: Write, team_id: UUID, caller_id: UUID, member: str) -> Membership:
    """The membership of ``member``, as `lock_for_owner` locks it."""
    lock_for_owner(session, team_id, caller_id)
    membership = session.get(Membership, (team_id, parse_id("user", member)), populate_existing=True)
    if membership is None:
        raise unknown("user", member)
    return membership


def _require_other_owner(session: Write, membership: Membership, refused: str) -> None:
    if is_last_owner(session, membership):
        detail = (
            f"{refused}: a team needs an owner, and this is the last one. Make another member an owner first."
        )
        raise Conflict("last_owner", detail)


def _revoke_invitations_by(session: Write, membership: Membership) -> None:
    session.change(
        delete(OneTimeLink).where(
            OneTimeLink.team_id == membership.team_id,
            OneTimeLink.purpose == LinkPurpose.INVITATION,
            OneTimeLink.invited_by == membership.user_id,
            OneTimeLink.used.is_(None),
        )
    )


def _to_response(account: Account, role: Role) -> Member:
    return Member(
        id=public_id("user", account.id),
        name=account.name,
        email=account.shown_email,
        role=role,
        service=account.is_service,
    )
