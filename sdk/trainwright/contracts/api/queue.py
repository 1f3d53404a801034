"""The queue of a team: the order in which its waiting runs start."""

from __future__ import annotations

from enum import StrEnum

from pydantic import AwareDatetime, Field

from trainwright.contracts.api.people import Role
from trainwright.contracts.base import Envelope, Strict

MOST_REORDERED = 200


class Priority(StrEnum):
    """Of a team's waiting runs, those of a higher priority start first."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"


HIGHEST_PRIORITY = {Role.VIEWER: Priority.LOW, Role.EDITOR: Priority.NORMAL, Role.OWNER: Priority.HIGH}
"""The highest priority that a member of each role can give."""


class QueuedRun(Envelope):
    """A run in the queue of its team."""

    id: str
    name: str
    created_by: str | None
    mine: bool
    """Whether you submitted it."""

    device: str
    slots: int
    """On all its nodes together."""

    priority: Priority
    position: int
    """Among the team's waiting runs of the same device, from 1."""

    sentence: str
    """What it waits for, and behind which run."""

    queued: AwareDatetime
    """Since when it waits."""

    expected_start: AwareDatetime | None = None
    """By the time that the runs before it are expected to take. Null: that is not known."""


class QueueOrder(Strict):
    """A new order of some waiting runs, which are all of one priority. They share out the places that they have."""

    runs: tuple[str, ...] = Field(min_length=2, max_length=MOST_REORDERED)
    """Ids, the one to start first at the beginning."""
