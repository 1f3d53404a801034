"""One-time links: for the first owner, for an invitation to a team, and for signing in without a password.

A link contains a random token, and its keyed hash is stored. It works once: using it is a guarded UPDATE that only one of
several concurrent requests wins, in the transaction that does what the link is for. There is no default account: the
first person of an installation uses a link that its operator prints.

The person who creates an invitation sees its link, so it never signs anyone in to an existing account: the owner of that
account must sign in first, and then use the link. Nor does looking at a link tell whether its address has an account: to
everyone but the signed-in owner of the address, an invitation is one for a newcomer.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlsplit
from uuid import UUID

from sqlalchemy import ColumnElement, delete, func, select, update
from sqlalchemy.exc import IntegrityError

from trainwright.contracts.api.people import (
    Invitation,
    LinkInfo,
    LinkPurpose,
    Me,
    NewInvitation,
    NewTeam,
    PendingInvitation,
    Role,
)
from trainwright.contracts.api.people import OneTimeLink as UsedLink
from trainwright.contracts.base import Problem
from trainwright_backend.auth.passwords import hash_password
from trainwright_backend.auth.service import account_by_email, end_all_access, me, normal_email, open_session
from trainwright_backend.auth.tables import Account, Membership, OneTimeLink, Team
from trainwright_backend.core.db import Database, Read, Write, now
from trainwright_backend.core.errors import Conflict, Invalid, NotFound, Unauthorized
from trainwright_backend.core.ids import parse_id, public_id, unknown
from trainwright_backend.core.public_address import local_warning, reachable_address
from trainwright_backend.core.security import keyed_hash, new_token
from trainwright_backend.core.settings import Settings
from trainwright_backend.teams.members import lock_for_owner
from trainwright_backend.teams.service import create_team

LIFETIMES = {
    LinkPurpose.FIRST_OWNER: timedelta(hours=24),
    LinkPurpose.INVITATION: timedelta(days=7),
    LinkPurpose.SIGN_IN: timedelta(minutes=15),
}

MAX_INVITATIONS = 200
"""Pending invitations that one team can have."""


@dataclass(frozen=True)
class NewLink:
    """A new link. Its address is not stored anywhere."""

    id: UUID
    url: str
    expires: datetime


@dataclass(frozen=True)
class SignedIn:
    """The person that a link has signed in."""

    me: Me
    session_token: str


def first_owner_link(session: Write, settings: Settings) -> NewLink:
    """Create a link for the installation's first account.

    Raises:
        Conflict: an account exists already.
    """
    _require_no_account(session)
    return _new_link(session, settings, LinkPurpose.FIRST_OWNER)


def sign_in_link(session: Write, settings: Settings, email: str) -> NewLink:
    """Create a link that signs ``email`` in, for the operator, who has access to the database anyway."""
    if account_by_email(session, email) is None:
        raise NotFound(f"There is no account with the address {email}.")
    return _new_link(session, settings, LinkPurpose.SIGN_IN, email=normal_email(email))


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
        inviter_id: the owner who invites. The invitation is revoked when they no longer are one.
        requested: the address by which the request reached the server.

    Raises:
        Forbidden: they are no longer an owner.
        Conflict: ``already_member``, ``too_many_invitations``.
    """
    lock_for_owner(session, team_id, inviter_id)
    email = normal_email(new.email)
    account = account_by_email(session, email)
    if account is not None and session.get(Membership, (team_id, account.id)) is not None:
        raise Conflict("already_member", f"{email} is already in the team.")
    _revoke_invitations_of(session, team_id, email)
    if len(open_invitations(session, team_id)) >= MAX_INVITATIONS:
        detail = f"Your team has {MAX_INVITATIONS} pending invitations. Revoke some that nobody will use."
        raise Conflict("too_many_invitations", detail)
    link = _new_link(
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
        .where(*_pending_in(team_id), OneTimeLink.expires > now())
        .order_by(OneTimeLink.id.desc())
    )
    return [_to_response(row) for row in rows]


def revoke_invitation(session: Write, team_id: UUID, invitation: str) -> None:
    """Revoke an invitation: its link becomes invalid.

    Raises:
        NotFound: the team has no such invitation, or its link was used.
    """
    link_id = parse_id("invite", invitation)
    if not session.change(delete(OneTimeLink).where(OneTimeLink.id == link_id, *_pending_in(team_id))):
        raise unknown("invite", invitation)


def link_info(session: Read, settings: Settings, token: str, caller: UUID | None) -> LinkInfo:
    """The purpose of a link.

    Args:
        caller: the account that is signed in, if any.

    Raises:
        NotFound: the link was used, has expired, or never existed.
    """
    link = _find(session, settings, token)
    team = None if link.team_id is None else session.get_one(Team, link.team_id).slug
    return LinkInfo(
        purpose=LinkPurpose(link.purpose),
        email=link.email,
        team=team,
        needs_account=_needs_account(session, link, caller),
    )


def use_link(database: Database, settings: Settings, used: UsedLink, caller: UUID | None) -> SignedIn:
    """Do what the link is for, and sign its person in.

    Args:
        caller: the account that is signed in already, if any.

    Raises:
        NotFound: the link is not valid.
        Invalid: a field of the new account is missing.
        Unauthorized: the invited person has an account and is not signed in.
    """
    with database.read() as session:
        link = _find(session, settings, used.token)
        about = (used.name, used.email, link.email, used.team)
        password_hash = None
        if _needs_account(session, link, caller):
            _check_account_fields(link, used)
            if link.email is not None and account_by_email(session, link.email) is not None:
                raise Unauthorized(f"Sign in as {link.email} first, then open the link again.")
            password_hash = used.password
        elif link.purpose == LinkPurpose.SIGN_IN:
            password_hash = used.password
    if password_hash is not None:
        password_hash = hash_password(password_hash, about)  # slow: no session is open
    with database.write() as session:
        link = _take(session, settings, used.token)
        if link.purpose == LinkPurpose.SIGN_IN:
            account = _recovered(session, link, password_hash)
        else:
            account = _account_for(session, link, used, password_hash)
        if link.purpose == LinkPurpose.INVITATION:
            if password_hash is None and caller != account.id:
                raise Unauthorized(f"Sign in as {link.email} first, then open the link again.")
            _join(session, link, account)
        if link.purpose == LinkPurpose.FIRST_OWNER:
            assert used.team is not None
            new_team = NewTeam(slug=used.team, name=used.team)
            create_team(session, new_team, account.id, settings.default_quota, settings.default_storage_gib)
        return SignedIn(me(session, account.id), open_session(session, settings, account))


def _new_link(
    session: Write,
    settings: Settings,
    purpose: LinkPurpose,
    *,
    email: str | None = None,
    team_id: UUID | None = None,
    role: Role | None = None,
    invited_by: UUID | None = None,
    requested: str | None = None,
) -> NewLink:
    session.execute(delete(OneTimeLink).where(OneTimeLink.expires < now()))
    token = new_token()
    link = OneTimeLink(
        hash=_hash(settings, token),
        purpose=purpose,
        email=email,
        team_id=team_id,
        role=role,
        invited_by=invited_by,
        expires=now() + LIFETIMES[purpose],
    )
    session.add(link)
    session.flush()
    return NewLink(link.id, f"{reachable_address(settings, requested)}/link/{token}", link.expires)


def _to_response(link: OneTimeLink) -> PendingInvitation:
    assert link.email is not None and link.role is not None, "an invitation has an address and a role"
    return PendingInvitation(
        id=public_id("invite", link.id), email=link.email, role=Role(link.role), expires=link.expires
    )


def _revoke_invitations_of(session: Write, team_id: UUID, email: str) -> None:
    session.change(delete(OneTimeLink).where(*_pending_in(team_id), OneTimeLink.email == email))


def _pending_in(team_id: UUID) -> tuple[ColumnElement[bool], ...]:
    return (
        OneTimeLink.team_id == team_id,
        OneTimeLink.purpose == LinkPurpose.INVITATION,
        OneTimeLink.used.is_(None),
    )


def _find(session: Read, settings: Settings, token: str) -> OneTimeLink:
    link = session.scalar(
        select(OneTimeLink).where(
            OneTimeLink.hash == _hash(settings, token),
            OneTimeLink.used.is_(None),
            OneTimeLink.expires > now(),
        )
    )
    if link is None:
        raise _not_valid()
    return link


def _take(session: Write, settings: Settings, token: str) -> OneTimeLink:
    """Use the link up. Only one of several concurrent requests succeeds."""
    link = _find(session, settings, token)
    taken = session.change(
        update(OneTimeLink).where(OneTimeLink.id == link.id, OneTimeLink.used.is_(None)).values(used=now())
    )
    if not taken:
        raise _not_valid()
    return link


def _needs_account(session: Read, link: OneTimeLink, caller: UUID | None) -> bool:
    """Whether the caller must fill in an account. Others learn nothing about the owner of the link's address."""
    if link.purpose == LinkPurpose.SIGN_IN:
        return False
    person = None if caller is None else session.get(Account, caller)
    return person is None or person.email != link.email


_REQUIRED = "A new account needs this field. If you have an account with this address, sign in first."


def _check_account_fields(link: OneTimeLink, used: UsedLink) -> None:
    needed = {"name": used.name, "password": used.password}
    if link.purpose == LinkPurpose.FIRST_OWNER:
        needed |= {"email": used.email, "team": used.team}
    missing = [Problem(field=field, message=_REQUIRED) for field, value in needed.items() if value is None]
    if missing:
        raise Invalid(missing)
    if link.email is not None and used.email is not None and normal_email(used.email) != link.email:
        raise Invalid.at("email", f"This link is for {link.email}: leave the field empty.", used.email)


def _account_for(session: Write, link: OneTimeLink, used: UsedLink, password_hash: str | None) -> Account:
    """The existing account of the link's person, or a new one."""
    if password_hash is None:
        account = account_by_email(session, link.email or "")
        if account is None:
            raise _not_valid()
        return account
    if link.purpose == LinkPurpose.FIRST_OWNER:
        _require_no_account(session)
    email = normal_email(link.email or used.email or "")
    assert used.name is not None
    account = Account(
        email=email,
        name=used.name,
        password_hash=password_hash,
        site_admin=link.purpose == LinkPurpose.FIRST_OWNER,
    )
    session.add(account)
    try:
        session.flush()
    except IntegrityError:
        raise Conflict(
            "email_taken", f"An account with the address {email} exists already. Sign in first."
        ) from None
    return account


def _recovered(session: Write, link: OneTimeLink, password_hash: str | None) -> Account:
    """The account of a sign-in link. With a new password, everyone who had access to it loses that."""
    account = account_by_email(session, link.email or "")
    if account is None:
        raise _not_valid()
    if password_hash is not None:
        end_all_access(session, account.id)
        account.password_hash = password_hash
    return account


def _join(session: Write, link: OneTimeLink, account: Account) -> None:
    assert link.team_id is not None and link.role is not None
    if session.get(Membership, (link.team_id, account.id)) is None:
        session.add(Membership(team_id=link.team_id, user_id=account.id, role=link.role))
        session.flush()
    _revoke_invitations_of(session, link.team_id, account.email)


def _require_no_account(session: Write) -> None:
    if session.get_bind().dialect.name == "postgresql":
        session.execute(select(func.pg_advisory_xact_lock(func.hashtext("trainwright first owner"))))
    if session.scalar(select(func.count()).select_from(Account)):
        raise Conflict(
            "already_set_up", "This installation already has its first owner. Ask for an invitation."
        )


def _not_valid() -> NotFound:
    return NotFound(
        "This link was already used or has expired. Ask its sender for a new one.", code="link_not_valid"
    )


def _hash(settings: Settings, token: str) -> str:
    return keyed_hash(settings.secret_key, "link", token)
