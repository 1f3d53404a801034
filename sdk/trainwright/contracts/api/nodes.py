"""Nodes, and how one joins."""

from __future__ import annotations

from pydantic import AwareDatetime, Field

from trainwright.contracts.agent_protocol import Inventory
from trainwright.contracts.base import Envelope, Strict


class Node(Envelope):
    id: str
    name: str
    online: bool
    last_heartbeat: AwareDatetime | None
    inventory: Inventory
    slots: dict[str, int]
    """Slots by device."""

    slots_free: dict[str, int]


class NewJoinToken(Strict):
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")
    """Name of the node that may join with it."""


class JoinToken(Envelope):
    token: str
    name: str
    expires: AwareDatetime
