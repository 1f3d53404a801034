"""The queue of a team: the order in which its waiting runs start."""

from __future__ import annotations

from enum import StrEnum

from pydantic import AwareDatetime, Field

from trainwright.contracts.api.people import Role
from trainwright.contracts.base import Envelope, Strict

MAX_REORDERED = 200


class Priority(StrEnum):
    """Priority of a run: among a team's waiting runs, those of a higher priority start first."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"


HIGHEST_PRIORITY = {Role.VIEWER: Priority.LOW, Role.EDITOR: Priority.NORMAL, Role.OWNER: Priority.HIGH}
"""The highest priority that a member of each role can assign."""


class QueuedRun(Envelope):
    """A run in the queue of its team."""

    id: str
    name: str
    created_by: str | None
    mine: bool
    """Whether you submitted it."""

    device: str
    slots: int
    """Slots on all its nodes together."""

    priority: Priority
    position: int
    """Position among the team's waiting runs of the same device, from 1."""

    sentence: str
    """What it waits for, and behind which run."""

    queued: AwareDatetime
    """When it started to wait."""

    expected_start: AwareDatetime | None = None
    """When it would start if all runs ended as expected. Null: not known."""

    start_is_rough: bool = False
    """Whether that depends on runs whose length is only roughly known: from the typical speed of their team's newest runs."""


class QueueOrder(Strict):
    """A new order of some waiting runs of the same priority. They exchange places among themselves."""

    runs: tuple[str, ...] = Field(min_length=2, max_length=MAX_REORDERED)
    """Ids, in the order in which the runs should start."""
