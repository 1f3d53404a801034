"""A team's quotas and limits, the ledger of the runs that use them, and the slot time that they used."""

from datetime import date, datetime
from uuid import UUID

from sqlalchemy import JSON, BigInteger, CheckConstraint, ForeignKey, ForeignKeyConstraint, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from trainwright_backend.core.db import Base, UtcDateTime, now
from trainwright_backend.core.ids import new_id


class Quota(Base):
    """Limit and use of one kind of device. ``used`` always equals the sum of the ledger."""

    __tablename__ = "quota"
    __table_args__ = (CheckConstraint("used >= 0", name="used_not_negative"),)

    team_id: Mapped[UUID] = mapped_column(ForeignKey("team.id", ondelete="CASCADE"), primary_key=True)
    device: Mapped[str] = mapped_column(String(16), primary_key=True)
    slots_limit: Mapped[int]
    guaranteed_slots: Mapped[int] = mapped_column(default=0)
    """The team's share, at most the limit. What it uses beyond it is borrowed."""
    used: Mapped[int] = mapped_column(default=0)


class StorageQuota(Base):
    """Bytes that a team can store. ``used_bytes`` counts its open uploads, as announced, and its stored files."""

    __tablename__ = "storage_quota"
    __table_args__ = (CheckConstraint("used_bytes >= 0", name="used_not_negative"),)

    team_id: Mapped[UUID] = mapped_column(ForeignKey("team.id", ondelete="CASCADE"), primary_key=True)
    limit_bytes: Mapped[int] = mapped_column(BigInteger)
    used_bytes: Mapped[int] = mapped_column(BigInteger, default=0)


class LedgerEntry(Base):
    """One change of ``quota.used``. It never changes, and is deleted only with its team."""

    __tablename__ = "quota_ledger"
    __table_args__ = (Index("ix_quota_ledger_team_id_device", "team_id", "device"),)

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    team_id: Mapped[UUID] = mapped_column(ForeignKey("team.id", ondelete="CASCADE"))
    device: Mapped[str] = mapped_column(String(16))
    run_id: Mapped[UUID] = mapped_column(index=True)
    """No foreign key: the ledger outlives the run."""

    reason: Mapped[str] = mapped_column(String(16))
    """`reserve` or `release`."""

    slots: Mapped[int]
    """Added to ``quota.used``: negative for a release."""

    time: Mapped[datetime] = mapped_column(UtcDateTime, default=now)


class IdempotencyKey(Base):
    """A used Idempotency-Key, the request it was used for, and what that request created."""

    __tablename__ = "submission"

    team_id: Mapped[UUID] = mapped_column(ForeignKey("team.id", ondelete="CASCADE"), primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    body_digest: Mapped[str]
    run_id: Mapped[UUID | None] = mapped_column(ForeignKey("run.id", ondelete="SET NULL"), index=True)
    """Empty once the run was deleted: a late repetition must not start it again."""
    dataset_id: Mapped[UUID | None]
    """No foreign key: a late repetition must not create a deleted dataset again."""
    upload_id: Mapped[UUID | None]
    """Neither here."""
    created: Mapped[datetime] = mapped_column(UtcDateTime)


class SlotTime(Base):
    """How long a run used its slots on one day (UTC): slots × seconds from `leased` to the end of each attempt."""

    __tablename__ = "slot_time"
    __table_args__ = (Index("ix_slot_time_team_id_day", "team_id", "day"),)

    run_id: Mapped[UUID] = mapped_column(primary_key=True)
    """No foreign key: the used time stays when the run is deleted."""
    day: Mapped[date] = mapped_column(primary_key=True)
    device: Mapped[str] = mapped_column(String(16))
    team_id: Mapped[UUID] = mapped_column(ForeignKey("team.id", ondelete="CASCADE"))
    user_id: Mapped[UUID | None]
    """Who submitted the run. No foreign key, as above; empty for runs that were deleted before this was recorded."""
    slot_seconds: Mapped[float]


class RunLimitColumns:
    """The columns of `RunLimits`. Empty: no limit."""

    gpu_hours_per_month: Mapped[float | None]
    cpu_hours_per_month: Mapped[float | None]
    concurrent_runs: Mapped[int | None]
    queued_runs: Mapped[int | None]


class TeamLimits(RunLimitColumns, Base):
    """Limits of a team, a `contracts.api.limits.TeamLimits`. A team without a row has none."""

    __tablename__ = "team_limits"

    team_id: Mapped[UUID] = mapped_column(ForeignKey("team.id", ondelete="CASCADE"), primary_key=True)
    storage_bytes: Mapped[int | None] = mapped_column(BigInteger)
    editor_priority: Mapped[str] = mapped_column(String(16))
    owner_priority: Mapped[str] = mapped_column(String(16))


class MemberLimits(RunLimitColumns, Base):
    """Limits of a member, a `contracts.api.limits.MemberLimits`. They go with the membership."""

    __tablename__ = "member_limits"
    __table_args__ = (
        ForeignKeyConstraint(
            ["team_id", "user_id"], ["membership.team_id", "membership.user_id"], ondelete="CASCADE"
        ),
    )

    team_id: Mapped[UUID] = mapped_column(primary_key=True)
    user_id: Mapped[UUID] = mapped_column(primary_key=True)
    gpus: Mapped[int | None]
    cpu_slots: Mapped[int | None]
    storage_bytes: Mapped[int | None] = mapped_column(BigInteger)
    highest_priority: Mapped[str | None] = mapped_column(String(16))


class LimitNotice(Base):
    """A team or a member reached a share of a limit, stored once a month for each value of the limit."""

    __tablename__ = "limit_notice"
    __table_args__ = (Index("ix_limit_notice_team_id_month", "team_id", "month"),)

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    team_id: Mapped[UUID] = mapped_column(ForeignKey("team.id", ondelete="CASCADE"))
    user_id: Mapped[UUID | None] = mapped_column(ForeignKey("account.id", ondelete="CASCADE"), index=True)
    """Empty: the team's limit."""
    resource: Mapped[str] = mapped_column(String(16))
    """A `LimitedResource`."""
    month: Mapped[date]
    """Its first day."""
    percent: Mapped[int]
    limit: Mapped[float]
    time: Mapped[datetime] = mapped_column(UtcDateTime, default=now)


class Webhook(Base):
    """An address that gets messages about a team. Its secret is derived from its id, so it is not stored."""

    __tablename__ = "webhook"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    team_id: Mapped[UUID] = mapped_column(ForeignKey("team.id", ondelete="CASCADE"), index=True)
    url: Mapped[str] = mapped_column(String(500))
    events: Mapped[list[str]] = mapped_column(JSON)
    """`WebhookEvent`s."""
    created: Mapped[datetime] = mapped_column(UtcDateTime, default=now)
    created_by_name: Mapped[str] = mapped_column(String(80))


class WebhookDelivery(Base):
    """A message to one webhook, stored in the transaction of the change that it reports."""

    __tablename__ = "webhook_delivery"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    webhook_id: Mapped[UUID] = mapped_column(ForeignKey("webhook.id", ondelete="CASCADE"), index=True)
    event: Mapped[str] = mapped_column(String(32))
    body: Mapped[str]
    created: Mapped[datetime] = mapped_column(UtcDateTime, default=now, index=True)
    attempts: Mapped[int] = mapped_column(default=0)
    next_attempt: Mapped[datetime | None] = mapped_column(UtcDateTime, index=True)
    """Empty once it was delivered or given up."""
    delivered: Mapped[datetime | None] = mapped_column(UtcDateTime)
    status: Mapped[int | None]
    error: Mapped[str] = mapped_column(default="")


class Notice(Base):
    """A notice to one person, stored in the transaction of the change that it reports."""

    __tablename__ = "notice"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    user_id: Mapped[UUID] = mapped_column(ForeignKey("account.id", ondelete="CASCADE"), index=True)
    team_id: Mapped[UUID | None] = mapped_column(ForeignKey("team.id", ondelete="CASCADE"), index=True)
    """Only members of the team see it. Empty: a notice to site admins."""
    kind: Mapped[str] = mapped_column(String(32))
    """A `NoticeKind`."""
    sentence: Mapped[str]
    path: Mapped[str]
    """Path of the page that says more."""
    time: Mapped[datetime] = mapped_column(UtcDateTime, default=now)
    in_app: Mapped[bool]
    """Whether it is listed; otherwise it is only mailed."""
    read: Mapped[datetime | None] = mapped_column(UtcDateTime)
    next_mail: Mapped[datetime | None] = mapped_column(UtcDateTime, index=True)
    """When to mail it. Empty: it is not mailed, is being mailed, was mailed or was given up."""
    mail_attempts: Mapped[int] = mapped_column(default=0)
    mailed: Mapped[datetime | None] = mapped_column(UtcDateTime)
    mail_error: Mapped[str] = mapped_column(default="")
    """Why the last attempt failed, or why it was not mailed."""


class NoticeChoice(Base):
    """How a person wants to get notices of a kind. Without a row: in the app, if they are about own runs."""

    __tablename__ = "notice_choice"

    user_id: Mapped[UUID] = mapped_column(ForeignKey("account.id", ondelete="CASCADE"), primary_key=True)
    kind: Mapped[str] = mapped_column(String(32), primary_key=True)
    app: Mapped[bool]
    mail: Mapped[bool]
