"""One-time links: for the first owner, for an invitation to a team, and for signing in without a password.

A link contains a random token, and its keyed hash is stored. It works once: using it is a guarded UPDATE that only one of
several concurrent requests wins, in the transaction that does what the link is for. There is no default account: the
first person of an installation uses a link that its operator prints.

The person who creates an invitation sees its link. Therefore it never signs anyone in to an existing account: the owner of
that account must sign in first, and then use the link. A link does not reveal whether its address has an account, either: an
invitation looks like one for a new user to everyone but the signed-in owner of the address.

The inviter could also use the link to create an account with the other person's address. Therefore a new account can join no
second team until a sign-in link, sent by mail or by the operator, has confirmed its address.
"""

from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError

from trainwright.contracts.api.people import LinkInfo, LinkPurpose, Me, NewTeam
from trainwright.contracts.api.people import OneTimeLink as UsedLink
from trainwright.contracts.base import Problem
from trainwright_backend.auth.passwords import hash_password
from trainwright_backend.auth.service import account_by_email, end_all_access, me, normal_email, open_session
from trainwright_backend.auth.tables import Account, Membership, OneTimeLink, Team
from trainwright_backend.core.db import Database, Read, Write
from trainwright_backend.core.errors import Conflict, Forbidden, Invalid, NotFound, Unauthorized
from trainwright_backend.core.settings import Settings
from trainwright_backend.teams.one_time_link_rows import (
    LIFETIMES,
    NewLink,
    create_link,
    find_link,
    not_valid,
    revoke_invitations_of,
    take_link,
)
from trainwright_backend.teams.service import create_team
from trainwright_backend.teams.team_locks import lock_team


@dataclass(frozen=True)
class SignedIn:
    """The person that a link has signed in."""

    me: Me
    session_token: str
    purpose: LinkPurpose


def first_owner_link(session: Write, settings: Settings) -> NewLink:
    """Create a link for the installation's first account.

    Raises:
        Conflict: an account exists already.
    """
    _require_no_account(session)
    return create_link(session, settings, LinkPurpose.FIRST_OWNER)


def sign_in_link(
    session: Write, settings: Settings, email: str, lifetime: timedelta = LIFETIMES[LinkPurpose.SIGN_IN]
) -> NewLink:
    """Create a link that signs ``email`` in. Only for a mail, or for the operator, who has access to the database anyway."""
    if account_by_email(session, email) is None:
        raise NotFound(f"There is no account with the address {email}.")
    return create_link(session, settings, LinkPurpose.SIGN_IN, email=normal_email(email), lifetime=lifetime)


def link_info(session: Read, settings: Settings, token: str, caller: UUID | None) -> LinkInfo:
    """The purpose of a link.

    Args:
        caller: the account that is signed in, if any.

    Raises:
        NotFound: the link was used, has expired, or never existed.
    """
    link = find_link(session, settings, token)
    team = None if link.team_id is None else session.get_one(Team, link.team_id).slug
    return LinkInfo(
        purpose=LinkPurpose(link.purpose),
        email=link.email,
        team=team,
        needs_account=_needs_account(session, link, caller),
        needs_password=_needs_password(session, link, caller),
    )


def use_link(database: Database, settings: Settings, used: UsedLink, caller: UUID | None) -> SignedIn:
    """Do what the link is for, and sign its person in.

    Args:
        caller: the account that is signed in already, if any.

    Raises:
        NotFound: the link is not valid.
        Invalid: a field of the new account is missing.
        Unauthorized: the invited person has an account and is not signed in.
        Forbidden: the address of the account is not confirmed.
    """
    with database.read() as session:
        link = find_link(session, settings, used.token)
        password = _new_password(session, link, used, caller)
    about = (used.name, used.email, link.email, used.team)
    password_hash = None if password is None else hash_password(password, about)  # slow: no session is open
    with database.write() as session:
        if link.team_id is not None:
            lock_team(session, link.team_id)
        link = take_link(session, settings, used.token)
        if link.purpose == LinkPurpose.SIGN_IN:
            account = _recovered(session, link, password_hash)
        else:
            account = _account_for(session, link, used, password_hash)
        if link.purpose == LinkPurpose.INVITATION:
            if password_hash is None and caller != account.id:
                raise Unauthorized(f"Sign in as {link.email} first, then open the link again.")
            _join(session, link, account, is_new=password_hash is not None)
        if link.purpose == LinkPurpose.FIRST_OWNER:
            assert used.team is not None
            new_team = NewTeam(slug=used.team, name=used.team)
            create_team(session, new_team, account.id, settings.default_quota, settings.default_storage_gib)
        token = open_session(session, settings, account)
        return SignedIn(me(session, account.id), token, LinkPurpose(link.purpose))


def _new_password(session: Read, link: OneTimeLink, used: UsedLink, caller: UUID | None) -> str | None:
    """The password that the link's account gets; None if it keeps its own."""
    if _needs_account(session, link, caller):
        _check_account_fields(link, used)
        if link.email is not None and account_by_email(session, link.email) is not None:
            raise Unauthorized(f"Sign in as {link.email} first, then open the link again.")
        return used.password
    if link.purpose != LinkPurpose.SIGN_IN:
        return None
    if used.password is None and _needs_password(session, link, caller):
        raise Invalid.at("password", _SET_PASSWORD)
    return used.password


def _needs_account(session: Read, link: OneTimeLink, caller: UUID | None) -> bool:
    """Whether the caller must fill in an account. Others learn nothing about the owner of the link's address."""
    if link.purpose == LinkPurpose.SIGN_IN:
        return False
    person = None if caller is None else session.get(Account, caller)
    return person is None or person.email != link.email


def _needs_password(session: Read, link: OneTimeLink, caller: UUID | None) -> bool:
    """Whether the link must set a new password. It must if someone else may know the present one, because the address was
    never confirmed and the caller is not signed in."""
    if link.purpose != LinkPurpose.SIGN_IN:
        return False
    account = account_by_email(session, link.email or "")
    return account is not None and not account.email_verified and account.id != caller


_UNVERIFIED = (
    "Your address {email} has not been confirmed. Request a sign-in link on the Settings page, or ask the operator for one "
    "(`trainwright-server link sign-in {email}`), and open it. Then open this link again."
)
_SET_PASSWORD = (
    "Choose a new password, because the address of this account has not been confirmed. This signs out all other sessions "
    "and revokes the account's API keys."
)
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
            raise not_valid()
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
        email_verified=link.purpose == LinkPurpose.FIRST_OWNER or _is_of_site_admin(session, link),
    )
    session.add(account)
    try:
        session.flush()
    except IntegrityError:
        detail = f"An account with the address {email} exists already. Sign in first."
        raise Conflict.at("email", email, "email_taken", detail) from None
    return account


def _is_of_site_admin(session: Read, link: OneTimeLink) -> bool:
    """Whether a site admin created the invitation. Its address then counts as confirmed."""
    inviter = None if link.invited_by is None else session.get(Account, link.invited_by)
    return inviter is not None and inviter.site_admin


def _recovered(session: Write, link: OneTimeLink, password_hash: str | None) -> Account:
    """The account of a sign-in link, whose address is now confirmed. A new password ends all other access to the account."""
    account = account_by_email(session, link.email or "")
    if account is None:
        raise not_valid()
    if password_hash is not None:
        end_all_access(session, account.id)
        account.password_hash = password_hash
    account.email_verified = True
    return account


def _join(session: Write, link: OneTimeLink, account: Account, *, is_new: bool) -> None:
    """Add the person to the team, which is locked.

    Raises:
        Forbidden: the account's address is not confirmed. The person who sent the first invitation may have created the
            account, and may know its password and keys.
    """
    if not is_new and not account.email_verified:
        raise Forbidden("address_not_verified", _UNVERIFIED.format(email=account.email))
    assert link.team_id is not None and link.role is not None
    if session.get(Membership, (link.team_id, account.id)) is None:
        session.add(Membership(team_id=link.team_id, user_id=account.id, role=link.role))
        session.flush()
    revoke_invitations_of(session, link.team_id, account.email)


def _require_no_account(session: Write) -> None:
    if session.get_bind().dialect.name == "postgresql":
        session.execute(select(func.pg_advisory_xact_lock(func.hashtext("trainwright first owner"))))
    if session.scalar(select(func.count()).select_from(Account)):
        raise Conflict(
            "already_set_up", "This installation already has its first owner. Ask for an invitation."
        )
