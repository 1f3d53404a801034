"""Rows of one-time links: creating, finding, using up and revoking them. A link's token is not stored, only its keyed hash."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import ColumnElement, delete, select, update

from trainwright.contracts.api.people import LinkPurpose, Role
from trainwright_backend.auth.tables import OneTimeLink
from trainwright_backend.core.db import Read, Write, now
from trainwright_backend.core.errors import NotFound
from trainwright_backend.core.public_address import reachable_address
from trainwright_backend.core.security import keyed_hash, new_token
from trainwright_backend.core.settings import Settings

LIFETIMES = {
    LinkPurpose.FIRST_OWNER: timedelta(hours=24),
    LinkPurpose.INVITATION: timedelta(days=7),
    LinkPurpose.SIGN_IN: timedelta(minutes=15),
}

MAILED_LIFETIME = timedelta(hours=1)
"""Lifetime of mailed sign-in links. It is longer, because mail may arrive late."""


@dataclass(frozen=True)
class NewLink:
    """A new link. Its address is not stored anywhere."""

    id: UUID
    url: str
    expires: datetime


def create_link(
    session: Write,
    settings: Settings,
    purpose: LinkPurpose,
    *,
    email: str | None = None,
    team_id: UUID | None = None,
    role: Role | None = None,
    invited_by: UUID | None = None,
    requested: str | None = None,
    lifetime: timedelta | None = None,
) -> NewLink:
    """Create a link; ``requested`` is the address by which the request reached the server."""
    session.execute(delete(OneTimeLink).where(OneTimeLink.expires < now()))
    token = new_token()
    link = OneTimeLink(
        hash=_hash(settings, token),
        purpose=purpose,
        email=email,
        team_id=team_id,
        role=role,
        invited_by=invited_by,
        expires=now() + (lifetime or LIFETIMES[purpose]),
    )
    session.add(link)
    session.flush()
    return NewLink(link.id, f"{reachable_address(settings, requested)}/link/{token}", link.expires)


def find_link(session: Read, settings: Settings, token: str) -> OneTimeLink:
    """A valid link.

    Raises:
        NotFound: it was used, has expired, or never existed.
    """
    link = session.scalar(
        select(OneTimeLink).where(
            OneTimeLink.hash == _hash(settings, token),
            OneTimeLink.used.is_(None),
            OneTimeLink.expires > now(),
        )
    )
    if link is None:
        raise not_valid()
    return link


def take_link(session: Write, settings: Settings, token: str) -> OneTimeLink:
    """Use the link up. Only one of several concurrent requests succeeds."""
    link = find_link(session, settings, token)
    taken = session.change(
        update(OneTimeLink).where(OneTimeLink.id == link.id, OneTimeLink.used.is_(None)).values(used=now())
    )
    if not taken:
        raise not_valid()
    return link


def revoke_invitations_of(session: Write, team_id: UUID, email: str) -> None:
    """Revoke the pending invitations of an address to the team."""
    session.change(delete(OneTimeLink).where(*pending_in(team_id), OneTimeLink.email == email))


def pending_in(team_id: UUID) -> tuple[ColumnElement[bool], ...]:
    """SQL conditions for the team's unused invitations."""
    return (
        OneTimeLink.team_id == team_id,
        OneTimeLink.purpose == LinkPurpose.INVITATION,
        OneTimeLink.used.is_(None),
    )


def not_valid() -> NotFound:
    return NotFound(
        "This link was already used or has expired. Ask its sender for a new one.", code="link_not_valid"
    )


def _hash(settings: Settings, token: str) -> str:
    return keyed_hash(settings.secret_key, "link", token)
