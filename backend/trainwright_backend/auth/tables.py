"""Accounts of people and services, teams and memberships, and the credentials of people, stored as keyed hashes."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import BigInteger, ForeignKey, Index, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from trainwright_backend.core.db import Base, UtcDateTime, now
from trainwright_backend.core.ids import new_id


class Account(Base):
    """A person, or a service account of a team: programs that belong to no person."""

    __tablename__ = "account"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    email: Mapped[str] = mapped_column(String(254), unique=True)
    """Lower case."""

    name: Mapped[str] = mapped_column(String(80))
    password_hash: Mapped[str] = mapped_column(String(255))
    """Empty if the account has no password, because its owner signs in with the identity provider."""

    site_admin: Mapped[bool] = mapped_column(default=False)
    email_verified: Mapped[bool] = mapped_column(default=False)
    """Whether the owner has confirmed the address by a link, or an operator or site admin vouched for it."""

    created: Mapped[datetime] = mapped_column(UtcDateTime, default=now)
    service_of: Mapped[UUID | None] = mapped_column(index=True)
    """The team of a service account, which has neither address nor password. Empty for people. It is not a foreign key, because SQLite
    adds one only to a new table, and an old `account` table cannot be replaced without deleting what refers to it."""

    @property
    def is_service(self) -> bool:
        return self.service_of is not None

    @property
    def shown_email(self) -> str:
        """The person's address; empty for a service account, whose column has a unique text that is not an address."""
        return "" if self.is_service else self.email


class Team(Base):
    """Owns datasets, runs and a quota."""

    __tablename__ = "team"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    slug: Mapped[str] = mapped_column(String(40), unique=True)
    name: Mapped[str] = mapped_column(String(80))
    created: Mapped[datetime] = mapped_column(UtcDateTime, default=now)


class Membership(Base):
    """A person's role in a team."""

    __tablename__ = "membership"

    team_id: Mapped[UUID] = mapped_column(ForeignKey("team.id", ondelete="CASCADE"), primary_key=True)
    user_id: Mapped[UUID] = mapped_column(
        ForeignKey("account.id", ondelete="CASCADE"), primary_key=True, index=True
    )
    role: Mapped[str] = mapped_column(String(16))
    """A `Role`."""

    by_groups: Mapped[bool] = mapped_column(default=False)
    """Whether it follows the person's groups at the identity provider. Others are changed by owners only."""


class ApiKey(Base):
    """A credential for programs, which act as its owner."""

    __tablename__ = "api_key"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    user_id: Mapped[UUID] = mapped_column(ForeignKey("account.id", ondelete="CASCADE"), index=True)
    name: Mapped[str] = mapped_column(String(80))
    prefix: Mapped[str] = mapped_column(String(16))
    """First characters of the key, which identify it in lists."""

    hash: Mapped[str] = mapped_column(String(64), unique=True)
    created: Mapped[datetime] = mapped_column(UtcDateTime, default=now)
    last_used: Mapped[datetime | None] = mapped_column(UtcDateTime)
    scope: Mapped[str] = mapped_column(String(16))
    """A `KeyScope`."""
    expires: Mapped[datetime | None] = mapped_column(UtcDateTime)


class BrowserSession(Base):
    """A signed-in browser. Its cookie contains the token of this hash."""

    __tablename__ = "browser_session"

    hash: Mapped[str] = mapped_column(String(64), primary_key=True)
    user_id: Mapped[UUID] = mapped_column(ForeignKey("account.id", ondelete="CASCADE"), index=True)
    created: Mapped[datetime] = mapped_column(UtcDateTime, default=now)
    expires: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    device: Mapped[str | None] = mapped_column(String(80))
    """Browser and system of its last use, as `auth.devices` names them."""
    address: Mapped[str | None] = mapped_column(String(64))
    """Network address of its last use."""
    last_used: Mapped[datetime | None] = mapped_column(UtcDateTime)
    provider: Mapped[str | None] = mapped_column(String(80))
    """Name of the identity provider that proved who the person is; empty after a password or a link."""


class ExternalIdentity(Base):
    """A person at an identity provider, who signs in to an account. Issuer and subject identify them, and nothing else does."""

    __tablename__ = "external_identity"
    __table_args__ = (UniqueConstraint("issuer", "subject"), UniqueConstraint("user_id", "issuer"))

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    issuer: Mapped[str] = mapped_column(String(255))
    subject: Mapped[str] = mapped_column(String(255))
    user_id: Mapped[UUID] = mapped_column(ForeignKey("account.id", ondelete="CASCADE"))
    email: Mapped[str] = mapped_column(String(254))
    """Their address at the last sign-in, as the provider told it; for people to read, not to find accounts."""

    created: Mapped[datetime] = mapped_column(UtcDateTime, default=now)
    last_used: Mapped[datetime] = mapped_column(UtcDateTime, default=now)


class DeviceLogin(Base):
    """A program that waits for an API key, until a person approves or refuses it on the page `/sign-in/device`."""

    __tablename__ = "device_login"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    device_hash: Mapped[str] = mapped_column(String(64), unique=True)
    user_hash: Mapped[str] = mapped_column(String(64), unique=True)
    client: Mapped[str] = mapped_column(String(80))
    address: Mapped[str] = mapped_column(String(64), index=True)
    scope: Mapped[str] = mapped_column(String(16))
    """A `KeyScope`."""
    lifetime_days: Mapped[int | None]
    created: Mapped[datetime] = mapped_column(UtcDateTime, default=now)
    expires: Mapped[datetime] = mapped_column(UtcDateTime)
    interval_seconds: Mapped[int]
    """The program must wait this long between two polls."""
    polled: Mapped[datetime | None] = mapped_column(UtcDateTime)
    user_id: Mapped[UUID | None] = mapped_column(ForeignKey("account.id", ondelete="CASCADE"), index=True)
    """The person who approved it; empty before."""
    refused: Mapped[bool] = mapped_column(default=False)


class OneTimeLink(Base):
    """A link that works once: it creates the first owner, invites someone to a team, or signs someone in."""

    __tablename__ = "one_time_link"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    hash: Mapped[str] = mapped_column(String(64), unique=True)
    purpose: Mapped[str] = mapped_column(String(16))
    """A `LinkPurpose`."""

    email: Mapped[str | None] = mapped_column(String(254))
    team_id: Mapped[UUID | None] = mapped_column(ForeignKey("team.id", ondelete="CASCADE"))
    role: Mapped[str | None] = mapped_column(String(16))
    invited_by: Mapped[UUID | None] = mapped_column(ForeignKey("account.id", ondelete="SET NULL"))
    """The owner who created an invitation: it is revoked when they no longer are one. Empty for older ones."""
    expires: Mapped[datetime] = mapped_column(UtcDateTime)
    used: Mapped[datetime | None] = mapped_column(UtcDateTime)


class SignInAttempt(Base):
    """A sign-in attempt for an email address, known or not. Rows older than the window are ignored."""

    __tablename__ = "sign_in_attempt"
    __table_args__ = (Index("ix_sign_in_attempt_subject_time", "subject", "time"),)

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    subject: Mapped[str] = mapped_column(String(64))
    """Keyed hash of the address."""

    time: Mapped[datetime] = mapped_column(UtcDateTime, default=now)


class AuditEntry(Base):
    """A change that a person made. Triggers refuse to change or delete a row. No foreign keys: it outlives what it names."""

    __tablename__ = "audit_entry"

    chain: Mapped[UUID] = mapped_column(primary_key=True)
    """The team's id, or `NO_TEAM` for changes outside of teams."""
    sequence: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    time: Mapped[datetime] = mapped_column(UtcDateTime)
    user_id: Mapped[UUID | None]
    user_name: Mapped[str]
    via: Mapped[str] = mapped_column(String(16))
    address: Mapped[str] = mapped_column(String(64))
    action: Mapped[str] = mapped_column(String(80))
    path: Mapped[str]
    details: Mapped[str]
    request_id: Mapped[str] = mapped_column(String(64))
    hash: Mapped[str] = mapped_column(String(64))


class AuditHead(Base):
    """The end of a chain. Whoever appends locks it, as the last lock of their transaction."""

    __tablename__ = "audit_head"

    chain: Mapped[UUID] = mapped_column(primary_key=True)
    sequence: Mapped[int] = mapped_column(BigInteger)
    hash: Mapped[str] = mapped_column(String(64))
