"""Limits of a team and of its members besides the slots of a team, and how much of them is used.

Months are calendar months in UTC.
"""

from __future__ import annotations

from datetime import date
from enum import StrEnum

from pydantic import AwareDatetime, Field

from trainwright.contracts.api.people import Role
from trainwright.contracts.api.queue import HIGHEST_PRIORITY, Priority
from trainwright.contracts.base import Envelope, Strict

NOTICE_PERCENTS = (80, 100)
"""Shares of a limit at which a notice is stored."""

MAX_HOURS = 1_000_000_000.0
MAX_RUNS = 1_000_000
MAX_BYTES = 2**60


class RunLimits(Strict):
    """Limits that a team and each of its members can have. Null: no limit."""

    gpu_hours_per_month: float | None = Field(default=None, ge=0, le=MAX_HOURS)
    """GPU-hours in a calendar month (UTC). When they are used up, running runs are paused and waiting ones wait."""

    cpu_hours_per_month: float | None = Field(default=None, ge=0, le=MAX_HOURS)
    """CPU slot-hours in a calendar month (UTC)."""

    concurrent_runs: int | None = Field(default=None, ge=0, le=MAX_RUNS)
    """Runs on nodes at the same time. Further ones wait."""

    queued_runs: int | None = Field(default=None, ge=0, le=MAX_RUNS)
    """Queued runs. Further submissions are refused."""

    def hours_of(self, device: str) -> float | None:
        """The monthly limit of hours of a device."""
        return self.gpu_hours_per_month if device == "cuda" else self.cpu_hours_per_month


class TeamLimits(RunLimits):
    """Limits of a team, which site admins set."""

    storage_bytes: int | None = Field(default=None, ge=0, le=MAX_BYTES)
    """Uploads, prepared data, checkpoints and exports together. A run whose next checkpoint would not fit is paused."""

    editor_priority: Priority = HIGHEST_PRIORITY[Role.EDITOR]
    """The highest priority that editors can assign."""

    owner_priority: Priority = HIGHEST_PRIORITY[Role.OWNER]
    """The highest priority that owners can assign."""


class MemberLimits(RunLimits):
    """Limits of one member's runs, within those of the team. Owners set them."""

    gpus: int | None = Field(default=None, ge=0, le=MAX_RUNS)
    """GPUs at the same time."""

    cpu_slots: int | None = Field(default=None, ge=0, le=MAX_RUNS)
    """CPU slots at the same time."""

    storage_bytes: int | None = Field(default=None, ge=0, le=MAX_BYTES)
    """The files that the member was the first to upload, the data prepared from these and for the member's datasets, and the
    checkpoints and exports of the member's runs together. A run whose next checkpoint would not fit is paused."""

    highest_priority: Priority | None = None
    """The highest priority that the member can assign, if it is lower than that of the role."""

    def slots_of(self, device: str) -> int | None:
        """The limit of slots of a device."""
        return self.gpus if device == "cuda" else self.cpu_slots


class MonthlyHours(Envelope):
    """Slot-hours of one device since the first day of the month."""

    device: str
    limit: float | None
    used: float
    """Running attempts count up to now."""

    forecast: float
    """Expected use of the entire month: the use so far, plus the mean of the last seven days for each remaining day."""


class TotalStorage(Envelope):
    """Everything that a team or a member stores, in bytes."""

    limit_bytes: int | None
    uploads_bytes: int
    """Uploaded files, as in `StorageUse.used_bytes`."""

    prepared_bytes: int
    """Parsed documents and token shards."""

    checkpoint_bytes: int
    """Checkpoints and exports, also those that are being uploaded."""

    reserved_bytes: int
    """Space that is reserved for the next checkpoints of the runs on nodes."""

    @property
    def used_bytes(self) -> int:
        """What is stored, without what is reserved."""
        return self.uploads_bytes + self.prepared_bytes + self.checkpoint_bytes


class LimitedResource(StrEnum):
    GPU_HOURS = "gpu_hours"
    CPU_HOURS = "cpu_hours"
    STORAGE = "storage"


class LimitNotice(Envelope):
    """A team or a member has reached a share of a limit."""

    time: AwareDatetime
    resource: LimitedResource
    member: str | None
    """Name of the member whose own limit it is. Null: it is the team's."""

    percent: int
    """80 or 100."""

    month: date
    """Its first day."""

    sentence: str


class LimitUse(Envelope):
    """A team's limits, and what is used of them."""

    month: date
    """First day of the current month (UTC)."""

    limits: TeamLimits
    hours: list[MonthlyHours]
    storage: TotalStorage
    running: int
    """Runs on nodes."""

    queued: int
    notices: list[LimitNotice]
    """This month's notices, newest first."""


class MemberLimitUse(Envelope):
    """A member's limits, and what is used of them."""

    user: str
    name: str
    limits: MemberLimits
    hours: list[MonthlyHours]
    storage: TotalStorage | None = None
    """Null: the server is of an older version."""

    running: int
    queued: int
