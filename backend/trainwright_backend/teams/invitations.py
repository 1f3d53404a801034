"""Invitations to a team: one-time links for an address. The owner who creates an invitation sends its link to the person."""

from urllib.parse import urlsplit
from uuid import UUID

from sqlalchemy import delete, select

from trainwright.contracts.api.people import Invitation, LinkPurpose, NewInvitation, PendingInvitation, Role
from trainwright_backend.auth.service import account_by_email, normal_email
from trainwright_backend.auth.tables import Membership, OneTimeLink
from trainwright_backend.core.db import Read, Write, now
from trainwright_backend.core.errors import Conflict
from trainwright_backend.core.ids import parse_id, public_id, unknown
from trainwright_backend.core.public_address import local_warning
from trainwright_backend.core.settings import Settings
from trainwright_backend.teams.members import lock_for_owner
from trainwright_backend.teams.one_time_link_rows import create_link, pending_in, revoke_invitations_of

MAX_INVITATIONS = 200
"""Pending invitations that one team can have."""


def invite(
    session: Write,
    settings: Settings,
    team_id: UUID,
    inviter_id: UUID,
    new: NewInvitation,
    requested: str | None = None,
) -> Invitation:
    """Invite the person with an address to the team. A new invitation replaces their earlier ones.

    Args:
        inviter_id: the owner who invites. The invitation is revoked when they cease to be an owner.
        requested: the address by which the request reached the server.

    Raises:
        Forbidden: the inviter is no longer an owner.
        Conflict: ``already_member``, ``too_many_invitations``.
    """
    lock_for_owner(session, team_id, inviter_id)
    email = normal_email(new.email)
    account = account_by_email(session, email)
    if account is not None and session.get(Membership, (team_id, account.id)) is not None:
        raise Conflict.at("email", new.email, "already_member", f"{email} is already in the team.")
    revoke_invitations_of(session, team_id, email)
    if len(open_invitations(session, team_id)) >= MAX_INVITATIONS:
        detail = f"Your team has {MAX_INVITATIONS} pending invitations. Revoke some that nobody will use."
        raise Conflict("too_many_invitations", detail)
    link = create_link(
        session,
        settings,
        LinkPurpose.INVITATION,
        email=email,
        team_id=team_id,
        role=new.role,
        invited_by=inviter_id,
        requested=requested,
    )
    return Invitation(
        id=public_id("invite", link.id),
        email=email,
        role=new.role,
        link=link.url,
        expires=link.expires,
        warning=local_warning(link.url.removesuffix(urlsplit(link.url).path)),
    )


def open_invitations(session: Read, team_id: UUID) -> list[PendingInvitation]:
    """The team's pending invitations, newest first."""
    rows = session.scalars(
        select(OneTimeLink)
        .where(*pending_in(team_id), OneTimeLink.expires > now())
        .order_by(OneTimeLink.id.desc())
    )
    return [_to_response(row) for row in rows]


def revoke_invitation(session: Write, team_id: UUID, invitation: str) -> None:
    """Revoke an invitation: its link becomes invalid.

    Raises:
        NotFound: the team has no such invitation, or its link was used.
    """
    link_id = parse_id("invite", invitation)
    revoked = delete(OneTimeLink).where(OneTimeLink.id == link_id, *pending_in(team_id))
    email = session.scalar(revoked.returning(OneTimeLink.email))
    if email is None:
        raise unknown("invite", invitation)
    session.deleted_names = (email,)


def _to_response(link: OneTimeLink) -> PendingInvitation:
    assert link.email is not None and link.role is not None, "an invitation has an address and a role"
    return PendingInvitation(
        id=public_id("invite", link.id), email=link.email, role=Role(link.role), expires=link.expires
    )
