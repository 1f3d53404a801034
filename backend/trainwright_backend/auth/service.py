"""Who somebody is: by password, by session; and which role they have in a team. API keys: `keys`; links: `links`.

Lookups compare keyed hashes, which the database does by index; there is nothing to time. Passwords are the one slow
secret (`passwords`), and trying them is counted (`guesses`).
"""

from datetime import timedelta
from uuid import UUID

from sqlalchemy import delete, select

from trainwright.contracts.api.people import Me, Role
from trainwright.contracts.api.people import Membership as MembershipOut
from trainwright_backend.auth.tables import Account, BrowserSession, Membership, Team
from trainwright_backend.core.db import Read, Write, now
from trainwright_backend.core.ids import public_id
from trainwright_backend.core.security import keyed_hash, new_token
from trainwright_backend.core.settings import Settings

SESSION_LIFE = timedelta(days=14)


def find_membership(session: Read, slug: str, user_id: UUID) -> tuple[Team, Role] | None:
    """The team of that slug and the person's role in it; None when either does not exist."""
    row = session.execute(
        select(Team, Membership.role)
        .join(Membership, Membership.team_id == Team.id)
        .where(Team.slug == slug, Membership.user_id == user_id)
    ).one_or_none()
    return None if row is None else (row[0], Role(row[1]))


def account_of_session(session: Read, settings: Settings, token: str) -> Account | None:
    """Who is signed in with this cookie."""
    return session.scalar(
        select(Account)
        .join(BrowserSession, BrowserSession.user_id == Account.id)
        .where(BrowserSession.hash == _session_hash(settings, token), BrowserSession.expires > now())
    )


def open_session(session: Write, settings: Settings, account: Account) -> str:
    """Sign ``account`` in; returns the token for the cookie, which is kept as a hash only."""
    session.execute(delete(BrowserSession).where(BrowserSession.expires <= now()))
    token = new_token()
    session.add(
        BrowserSession(hash=_session_hash(settings, token), user_id=account.id, expires=now() + SESSION_LIFE)
    )
    session.flush()
    return token


def close_session(session: Write, settings: Settings, token: str) -> None:
    """Sign out; harmless when nobody was signed in."""
    session.execute(delete(BrowserSession).where(BrowserSession.hash == _session_hash(settings, token)))


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
        email=account.email,
        site_admin=account.site_admin,
        teams=[MembershipOut(slug=team.slug, name=team.name, role=Role(role)) for team, role in rows],
    )


def account_by_email(session: Read, email: str) -> Account | None:
    return session.scalar(select(Account).where(Account.email == normal_email(email)))


def normal_email(email: str) -> str:
    """The one spelling under which an address is stored."""
    return email.strip().lower()


def _session_hash(settings: Settings, token: str) -> str:
    return keyed_hash(settings.secret_key, "session", token)
