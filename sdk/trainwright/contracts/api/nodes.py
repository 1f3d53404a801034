"""Nodes, and how one joins."""

from __future__ import annotations

from pydantic import AwareDatetime, Field

from trainwright.contracts.agent_protocol import Inventory, SelfTestCheck
from trainwright.contracts.base import NODE_PATTERN, Envelope, Strict
from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.hardware import HardwareUse
from trainwright.contracts.run_state import RunState


class Node(Envelope):
    id: str
    name: str
    online: bool
    last_heartbeat: AwareDatetime | None
    inventory: Inventory
    slots: dict[str, int]
    """Slots by device that runs may use."""

    reported_slots: dict[str, int] = {}
    """Slots by device that the node offers. A site admin must allow those that it adds after its join."""

    slots_free: dict[str, int]
    draining: bool = False
    """Whether no new runs are placed on it."""

    move_runs: bool = False
    """Whether it is drained, and its runs are moved to other nodes."""

    quarantine: Quarantine | None = None
    """Set while the node is in quarantine."""

    failures: list[NodeFailure] = []
    """The node's failures of the last 24 hours, newest first."""

    self_test: SelfTestResult | None = None
    """The node's newest self-test; null if it has never run one."""

    runs: list[NodeRun] = []
    hardware: HardwareUse | None = None
    """Current use; empty while the node is offline, and from agents that do not measure it."""


class NodeLoad(Envelope):
    """The load of a node over the last hours, in equal intervals. Series of its GPUs are there if its driver reports them."""

    start: AwareDatetime
    """Start of the first interval with a measurement."""

    interval_seconds: int
    series: list[LoadSeries]


class LoadSeries(Envelope):
    name: str
    """The same name as in a run's hardware series: `cpu_utilization`, `node_memory_bytes`, `gpu_utilization/0`."""

    values: list[float | None]
    """Of each interval; null where nothing was measured, because the node was offline. The load is measured once a minute, so in an
    interval of five minutes this is the mean of up to five measurements."""


class Quarantine(Envelope):
    """A node gets no runs until it passes a self-test, or a site admin releases it."""

    since: AwareDatetime
    reason: str


class NodeFailure(Envelope):
    """A failure of a node, not of a run."""

    time: AwareDatetime
    code: EndCode
    message: str


class SelfTestResult(Envelope):
    """The result of a node's self-test."""

    time: AwareDatetime
    passed: bool
    checks: list[SelfTestCheck]


class NodeRun(Envelope):
    """A run that occupies slots of a node."""

    team: str
    run: str
    name: str
    device: str
    slots: list[int]
    state: RunState


class NewJoinToken(Strict):
    name: str = Field(pattern=NODE_PATTERN)
    """Name of the node that may join with this token."""


class JoinToken(Envelope):
    token: str
    name: str
    expires: AwareDatetime
    api: str | None = None
    """Address of the server for the node's `--api`; empty from older servers."""

    warning: str | None = None
    """A warning that only the server's own machine reaches this address, or that an online node has this name."""
