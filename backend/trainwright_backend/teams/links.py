"""One-time links: the first owner, an invitation into a team, a sign-in without a password.

A link is a random token whose keyed hash is kept. It works once: using it is a guarded UPDATE that one of many
requests at once can win, in the transaction that does what the link is for. There is no default account: the first
person of an installation comes by a link that its operator prints.

An invitation is seen by the one who made it, so it never signs anybody in to an account that exists already: whoever
has that account signs in first and then uses the link.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
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
    OpenInvitation,
    Role,
)
from trainwright.contracts.api.people import OneTimeLink as UsedLink
from trainwright.contracts.base import Problem
from trainwright_backend.auth.passwords import hash_password
from trainwright_backend.auth.service import account_by_email, me, normal_email, open_session
from trainwright_backend.auth.tables import Account, Membership, OneTimeLink, Team
from trainwright_backend.core.db import Database, Read, Write, now
from trainwright_backend.core.errors import Conflict, Invalid, NotFound, Unauthorized
from trainwright_backend.core.ids import parse_id, public_id, unknown
from trainwright_backend.core.security import keyed_hash, new_token
from trainwright_backend.core.settings import Settings
from trainwright_backend.teams.service import create_team

LIFE = {
    LinkPurpose.FIRST_OWNER: timedelta(hours=24),
    LinkPurpose.INVITATION: timedelta(days=7),
    LinkPurpose.SIGN_IN: timedelta(minutes=15),
}


@dataclass(frozen=True)
class NewLink:
    """A link just made; its address is known here and nowhere else."""

    id: UUID
    url: str
    expires: datetime


@dataclass(frozen=True)
class SignedIn:
    """Whom a link has signed in."""

    me: Me
    session_token: str


def first_owner_link(session: Write, settings: Settings) -> NewLink:
    """A link that makes the installation's first account.

    Raises:
        Conflict: there is an account already.
    """
    _require_no_account(session)
    return _new_link(session, settings, LinkPurpose.FIRST_OWNER)


def sign_in_link(session: Write, settings: Settings, email: str) -> NewLink:
    """A link that signs the account of ``email`` in; for the operator, who can reach the database anyway."""
    if account_by_email(session, email) is None:
        raise NotFound(f"There is no account of {email}.")
    return _new_link(session, settings, LinkPurpose.SIGN_IN, email=normal_email(email))


def invite(session: Write, settings: Settings, team_id: UUID, new: NewInvitation) -> Invitation:
    """A link that brings the person of an address into the team."""
    email = normal_email(new.email)
    account = account_by_email(session, email)
    if account is not None and session.get(Membership, (team_id, account.id)) is not None:
        raise Conflict("already_member", f"{email} is in the team already.")
    link = _new_link(session, settings, LinkPurpose.INVITATION, email=email, team_id=team_id, role=new.role)
    return Invitation(
        id=public_id("invite", link.id), email=email, role=new.role, link=link.url, expires=link.expires
    )


def open_invitations(session: Read, team_id: UUID) -> list[OpenInvitation]:
    """The team's invitations whose links still work, the newest first."""
    rows = session.scalars(
        select(OneTimeLink)
        .where(*_open_in(team_id), OneTimeLink.expires > now())
        .order_by(OneTimeLink.id.desc())
    )
    return [_shown(row) for row in rows]


def revoke_invitation(session: Write, team_id: UUID, invitation: str) -> None:
    """Let the link of an invitation work no more.

    Raises:
        NotFound: the team has no such invitation, or its link was used.
    """
    link_id = parse_id("invite", invitation)
    if not session.change(delete(OneTimeLink).where(OneTimeLink.id == link_id, *_open_in(team_id))):
        raise unknown("invite", invitation)


def link_info(session: Read, settings: Settings, token: str) -> LinkInfo:
    """What a link is for.

    Raises:
        NotFound: it was used, has expired, or never existed.
    """
    link = _find(session, settings, token)
    team = None if link.team_id is None else session.get_one(Team, link.team_id).slug
    return LinkInfo(
        purpose=LinkPurpose(link.purpose),
        email=link.email,
        team=team,
        needs_account=_needs_account(session, link),
    )


def use_link(database: Database, settings: Settings, used: UsedLink, caller: UUID | None) -> SignedIn:
    """Do what the link is for, and sign its person in.

    Args:
        caller: who is signed in already, if anybody.

    Raises:
        NotFound: the link is not valid (any more).
        Invalid: something that the new account needs is missing.
        Unauthorized: an invitation of somebody who has an account and is not signed in.
    """
    with database.read() as session:
        link = _find(session, settings, used.token)
        password_hash = None
        if _needs_account(session, link):
            _check_account_fields(link, used)
            password_hash = used.password
    if password_hash is not None:
        password_hash = hash_password(password_hash)  # slow: no session is open
    with database.write() as session:
        link = _take(session, settings, used.token)
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
) -> NewLink:
    session.execute(delete(OneTimeLink).where(OneTimeLink.expires < now()))
    token = new_token()
    link = OneTimeLink(
        hash=_hash(settings, token),
        purpose=purpose,
        email=email,
        team_id=team_id,
        role=role,
        expires=now() + LIFE[purpose],
    )
    session.add(link)
    session.flush()
    return NewLink(link.id, f"{settings.public_url.rstrip('/')}/link/{token}", link.expires)


def _shown(link: OneTimeLink) -> OpenInvitation:
    assert link.email is not None and link.role is not None, "an invitation is somebody's, for a role"
    return OpenInvitation(
        id=public_id("invite", link.id), email=link.email, role=Role(link.role), expires=link.expires
    )


def _open_in(team_id: UUID) -> tuple[ColumnElement[bool], ...]:
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
    """Use the link up: of many requests at once, one gets past this."""
    link = _find(session, settings, token)
    taken = session.change(
        update(OneTimeLink).where(OneTimeLink.id == link.id, OneTimeLink.used.is_(None)).values(used=now())
    )
    if not taken:
        raise _not_valid()
    return link


def _needs_account(session: Read, link: OneTimeLink) -> bool:
    if link.purpose == LinkPurpose.SIGN_IN:
        return False
    return link.email is None or account_by_email(session, link.email) is None


def _check_account_fields(link: OneTimeLink, used: UsedLink) -> None:
    needed = {"name": used.name, "password": used.password}
    if link.purpose == LinkPurpose.FIRST_OWNER:
        needed |= {"email": used.email, "team": used.team}
    missing = [
        Problem(field=field, message="This field is required for a new account.")
        for field, value in needed.items()
        if value is None
    ]
    if missing:
        raise Invalid(missing)
    if link.email is not None and used.email is not None and normal_email(used.email) != link.email:
        raise Invalid.at("email", f"This link was made for {link.email}: leave the field empty.", used.email)


def _account_for(session: Write, link: OneTimeLink, used: UsedLink, password_hash: str | None) -> Account:
    """The link's person: an account that exists, or the new one."""
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
        raise Conflict("email_taken", f"There is an account of {email} already. Sign in first.") from None
    return account


def _join(session: Write, link: OneTimeLink, account: Account) -> None:
    assert link.team_id is not None and link.role is not None
    if session.get(Membership, (link.team_id, account.id)) is None:
        session.add(Membership(team_id=link.team_id, user_id=account.id, role=link.role))
        session.flush()


def _require_no_account(session: Write) -> None:
    if session.get_bind().dialect.name == "postgresql":
        session.execute(select(func.pg_advisory_xact_lock(func.hashtext("trainwright first owner"))))
    if session.scalar(select(func.count()).select_from(Account)):
        raise Conflict(
            "already_set_up", "This installation has its first owner already. Ask for an invitation."
        )


def _not_valid() -> NotFound:
    return NotFound(
        "This link was used already or has expired. Ask whoever sent it for a new one.", code="link_not_valid"
    )


def _hash(settings: Settings, token: str) -> str:
    return keyed_hash(settings.secret_key, "link", token)
