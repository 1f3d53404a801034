"""Row ``agents``: simulated agents and active runs, whose heartbeats and renewals the API has to answer in time.

An agent sends a heartbeat, and the supervisor of each run a renewal, at the default intervals; all of them together are spread
evenly. Each message uses a new connection, as theirs do: the server closes one that is idle for 5 s. A lease that expires although
its supervisor renewed on time is a spurious reap. Leases are short enough to expire within a measurement.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import insert, select

from tests.benchmarks.load.mix import CALLERS, PATIENCE_SECONDS, print_waits
from tests.benchmarks.load.processes import cpu_shares
from tests.benchmarks.load.row import OFFERED, Load, Measure, Row
from tests.benchmarks.load.table import Value, at_least, at_most
from tests.benchmarks.platform.open_loop import Call, ask
from tests.benchmarks.platform.server import Caller, Site, summary_row
from trainwright.contracts.agent_protocol import Phase, RenewalOrder
from trainwright_backend.core.db import now
from trainwright_backend.core.ids import new_id, public_id
from trainwright_backend.core.security import keyed_hash
from trainwright_backend.nodes.policies import TOKEN_PURPOSE
from trainwright_backend.nodes.tables import Node
from trainwright_backend.runs.tables import Attempt, Placement, PlacementEnd

HEARTBEAT = "/api/v1/agent/heartbeat"


@dataclass(frozen=True)
class SimulatedNode:
    """A node whose agent this process simulates."""

    id: UUID
    name: str
    token: str
    url: str
    """Of the API process that its connections reach."""


@dataclass(frozen=True)
class ActiveRun:
    """A run that one of these nodes works on."""

    id: UUID
    claim_id: str
    node: SimulatedNode

    @property
    def path(self) -> str:
        """Of the agent's routes for it."""
        return f"/api/v1/agent/runs/{public_id('run', self.id)}"


def add_nodes(site: Site, count: int, cpu_slots: int, prefix: str = "load") -> list[SimulatedNode]:
    """Nodes that have joined, and have not sent a heartbeat yet."""
    nodes = [
        SimulatedNode(new_id(), f"{prefix}-{n:04}", secrets.token_hex(16), site.urls[n % len(site.urls)])
        for n in range(count)
    ]
    machine = {"hostname": "load", "os": "Linux", "cores": 8, "memory_bytes": 1 << 36}
    rows = [
        {
            "id": node.id,
            "name": node.name,
            "token_hash": keyed_hash(site.settings.secret_key, TOKEN_PURPOSE, node.token),
            "joined": now(),
            "inventory": machine | {"cpu_slots": cpu_slots},
            "busy_slots": {},
            "quarantine_reason": "",
        }
        for node in nodes
    ]
    with site.database.write() as session:
        session.execute(insert(Node), rows)
    return nodes


def add_active_runs(site: Site, nodes: Sequence[SimulatedNode], count: int) -> list[ActiveRun]:
    """Running runs with leases of the site's length, spread over the nodes."""
    lease = site.settings.timers.lease_seconds
    runs = [ActiveRun(new_id(), secrets.token_hex(16), nodes[n % len(nodes)]) for n in range(count)]
    stored = [site.run_row(number, id=run.id) for number, run in enumerate(runs)]
    placements = [
        site.placement_row(
            run.id,
            claim_id=run.claim_id,
            node_id=run.node.id,
            node_name=run.node.name,
            lease_seconds=lease,
        )
        for run in runs
    ]
    with site.database.write() as session:
        session.add_all(stored)
        session.flush()
        session.add_all([summary_row(run.id) for run in runs])
        session.add_all(
            [Attempt(run_id=run.id, number=1, fence=1, resume_step=0, started=now()) for run in runs]
        )
        session.add_all(placements)
    return runs


def spurious_reaps(site: Site, runs: Sequence[ActiveRun]) -> int:
    """How many of these runs' leases have expired. Call it only for runs that renewed on time."""
    claims = {run.claim_id for run in runs}
    expired = select(Placement.claim_id).where(Placement.closed == PlacementEnd.EXPIRED)
    with site.database.read() as session:
        return sum(claim in claims for claim in session.scalars(expired))


@contextmanager
def agents(load: Load) -> Iterator[Measure]:
    """Heartbeats and renewals at their intervals."""
    site, goals, timers = load.site, load.goals, load.site.settings.timers
    nodes = add_nodes(site, goals.agents, cpu_slots=0)
    runs = add_active_runs(site, nodes, goals.active_runs)
    if load.size.seconds <= timers.lease_seconds:
        print(
            f"    no longer than a lease, {timers.lease_seconds:g} s: no lease can expire in one measurement"
        )
    rate = len(nodes) / timers.heartbeat_seconds + len(runs) / timers.renewal_seconds

    def measure() -> list[Value]:
        messages = itertools.islice(messages_of(nodes, runs), int(rate * load.size.seconds))
        callers = [Caller(site.url) for _ in range(CALLERS)]  # threads; each message has its own connection
        with cpu_shares(site.processes):
            responses = ask(callers, messages, OFFERED * rate, PATIENCE_SECONDS)
        print_waits(responses)
        errors = responses.statuses.total()
        return [
            Value("messages", responses.accepted_per_second, "per second", at_least(rate)),
            Value("spurious reaps", spurious_reaps(site, runs), "", at_most(0)),
            Value("refused messages", errors, "", at_most(0)),
            Value("renewal p95", responses.p95("renewal"), "ms"),
        ]

    yield measure


def messages_of(nodes: Sequence[SimulatedNode], runs: Sequence[ActiveRun]) -> Iterator[tuple[str, Call]]:
    """Endless: one heartbeat of each node and one renewal of each run in turn, mixed evenly."""
    once = [*((n / len(nodes), "heartbeat", beat(node)) for n, node in enumerate(nodes))]
    once += [(n / len(runs), "renewal", renewal(run)) for n, run in enumerate(runs)]
    once.sort(key=lambda message: message[0])
    return itertools.cycle([(kind, call) for _, kind, call in once])


def beat(node: SimulatedNode) -> Call:
    """A heartbeat on a new connection."""
    return lambda _: send(node, HEARTBEAT, {"busy_slots": {}})


def renewal(run: ActiveRun) -> Call:
    """A renewal on a new connection, which has to be answered with `go`."""
    body = {"claim_id": run.claim_id, "fence": 1, "phase": Phase.RUNNING}

    def renew(_: Caller) -> None:
        order = send(run.node, f"{run.path}/renew", body)["order"]
        if order != RenewalOrder.GO:
            raise RuntimeError(f"a renewal of {run.path} was answered with {order}")

    return renew


def send(node: SimulatedNode, path: str, body: dict[str, object]) -> dict[str, object]:
    """One message of a node on a new connection; the response.

    Raises:
        StatusError: it was refused. While the server answers 503, the message is repeated, as an agent does.
    """
    caller = Caller(node.url, node.token)
    try:
        response: dict[str, object] = caller.post(path, body)
        return response
    finally:
        caller.close()


AGENT_ROWS: dict[str, Row] = {"agents": agents}
