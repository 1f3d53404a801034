"""Identifying people by address or session, and their roles in teams. `keys` handles API keys.

Lookups compare keyed hashes by index, so timing reveals nothing. Passwords are the one slow secret (`passwords`), and
attempts are counted.
"""

from datetime import timedelta
from uuid import UUID

from sqlalchemy import bindparam, delete, select, update

from trainwright.contracts.api.people import Me, Role, SignedInBrowser
from trainwright.contracts.api.people import Membership as MembershipOut
from trainwright_backend.auth.devices import device_name
from trainwright_backend.auth.tables import (
    Account,
    ApiKey,
    BrowserSession,
    DeviceLogin,
    ExternalIdentity,
    Membership,
    Team,
)
from trainwright_backend.core.db import Database, Read, Write, now
from trainwright_backend.core.errors import Busy
from trainwright_backend.core.ids import public_id, unknown
from trainwright_backend.core.security import keyed_hash, new_token
from trainwright_backend.core.settings import Settings

SESSION_LIFETIME = timedelta(days=14)
LAST_USED_INTERVAL = timedelta(minutes=1)
"""How often the use of a session or key is written to the database, at most."""
SESSION_ID_DIGITS = 24
NO_PASSWORD = ""
"""Instead of the hash of a password."""

_MEMBERSHIP = (
    select(Team, Membership.role)
    .join(Membership, Membership.team_id == Team.id)
    .where(Team.slug == bindparam("slug"), Membership.user_id == bindparam("user_id"))
)
_SESSION_OWNER = (
    select(Account, BrowserSession.last_used)
    .join(BrowserSession, BrowserSession.user_id == Account.id)
    .where(BrowserSession.hash == bindparam("hash"), BrowserSession.expires > bindparam("now"))
)
"""This and `_MEMBERSHIP` are built once (see `core.db`)."""


def find_membership(session: Read, slug: str, user_id: UUID) -> tuple[Team, Role] | None:
    """The team with this slug and the person's role in it; None if either does not exist."""
    row = session.execute(_MEMBERSHIP, {"slug": slug, "user_id": user_id}).one_or_none()
    return None if row is None else (row[0], Role(row[1]))


def account_of_session(
    database: Database, settings: Settings, token: str, user_agent: str, address: str
) -> Account | None:
    """The account that is signed in with this cookie. Its use is recorded now and then."""
    hashed = _session_hash(settings, token)
    with database.read() as session:
        row = session.execute(_SESSION_OWNER, {"hash": hashed, "now": now()}).one_or_none()
    if row is None:
        return None
    account, last_used = row
    if last_used is None or now() - last_used > LAST_USED_INTERVAL:
        _record_use(database, hashed, device_name(user_agent), address)
    return account


def _record_use(database: Database, hashed: str, device: str, address: str) -> None:
    used = {"device": device, "address": address, "last_used": now()}
    try:
        with database.write() as session:
            session.execute(update(BrowserSession).where(BrowserSession.hash == hashed).values(used))
    except Busy:
        pass  # the next use is recorded


def open_session(
    session: Write,
    settings: Settings,
    account: Account,
    *,
    lifetime: timedelta = SESSION_LIFETIME,
    provider: str | None = None,
) -> str:
    """Sign ``account`` in. Returns the token for the cookie; only its hash is stored.

    Args:
        provider: name of the identity provider that proved who the person is.
    """
    session.execute(delete(BrowserSession).where(BrowserSession.expires <= now()))
    token = new_token()
    session.add(
        BrowserSession(
            hash=_session_hash(settings, token),
            user_id=account.id,
            expires=now() + lifetime,
            provider=provider,
        )
    )
    session.flush()
    return token


def close_session(session: Write, settings: Settings, token: str) -> None:
    """Sign out, if the token is valid."""
    session.execute(delete(BrowserSession).where(BrowserSession.hash == _session_hash(settings, token)))


def list_sessions(
    session: Read, settings: Settings, user_id: UUID, token: str | None
) -> list[SignedInBrowser]:
    """The browsers in which the person is signed in, newest first. ``token`` is the cookie of the current one."""
    current = None if token is None else _session_hash(settings, token)
    rows = session.scalars(
        select(BrowserSession)
        .where(BrowserSession.user_id == user_id, BrowserSession.expires > now())
        .order_by(BrowserSession.created.desc())
    )
    return [
        SignedInBrowser(
            id=_session_id(row.hash),
            created=row.created,
            expires=row.expires,
            current=row.hash == current,
            device=row.device or "",
            address=row.address or "",
            last_used=row.last_used,
            provider=row.provider or "",
        )
        for row in rows
    ]


def end_session(session: Write, user_id: UUID, session_id: str) -> None:
    """Sign one of the person's browsers out.

    Raises:
        NotFound: the person has no such session.
    """
    mine = session.scalars(select(BrowserSession.hash).where(BrowserSession.user_id == user_id))
    ended = [hashed for hashed in mine if _session_id(hashed) == session_id]
    if not ended:
        raise unknown("session", session_id)
    session.execute(delete(BrowserSession).where(BrowserSession.hash.in_(ended)))


def end_other_sessions(session: Write, settings: Settings, user_id: UUID, kept: str | None) -> None:
    """Sign the person out in every browser but that with the cookie ``kept``."""
    others = [BrowserSession.user_id == user_id]
    if kept is not None:
        others.append(BrowserSession.hash != _session_hash(settings, kept))
    session.execute(delete(BrowserSession).where(*others))


def end_all_access(session: Write, user_id: UUID) -> None:
    """End the person's sessions, revoke their keys, also those that programs wait for, and unlink their identities."""
    for table in (BrowserSession, ApiKey, DeviceLogin, ExternalIdentity):
        session.execute(delete(table).where(table.user_id == user_id))


def change_name(session: Write, user_id: UUID, name: str) -> Me:
    """Change a person's name. What they created keeps the name of that time."""
    session.change(update(Account).where(Account.id == user_id).values(name=name.strip()))
    return me(session, user_id)


def me(session: Read, user_id: UUID) -> Me:
    """A person with their teams."""
    account = session.get_one(Account, user_id)
    rows = session.execute(
        select(Team, Membership.role)
        .join(Membership, Membership.team_id == Team.id)
        .where(Membership.user_id == user_id)
        .order_by(Team.slug)
    )
    return Me(
        id=public_id("user", account.id),
        name=account.name,
        email=account.shown_email,
        site_admin=account.site_admin,
        email_verified=account.email_verified,
        has_password=account.password_hash != NO_PASSWORD,
        service=account.is_service,
        teams=[MembershipOut(slug=team.slug, name=team.name, role=Role(role)) for team, role in rows],
    )


def account_by_email(session: Read, email: str) -> Account | None:
    """The person with this address. Service accounts have none."""
    person = (Account.email == normal_email(email), Account.service_of.is_(None))
    return session.scalar(select(Account).where(*person))


def normal_email(email: str) -> str:
    """The form in which an address is stored."""
    return email.strip().lower()


def _session_id(hashed: str) -> str:
    """The start of the keyed hash, from which nobody can get the token."""
    return f"session_{hashed[:SESSION_ID_DIGITS]}"


def _session_hash(settings: Settings, token: str) -> str:
    return keyed_hash(settings.secret_key, "session", token)
