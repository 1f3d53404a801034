"""Tests of a suspected node's connections to two neighbours, as the last part of its self-test.

The suspect listens for each neighbour, and one neighbour listens for the other. The replies to heartbeats ask the nodes for this, and
their next heartbeats report the results. A test that a node has not finished in time counts as failed. `link_verdict` decides who is
to blame.

Neighbours are healthy nodes that the suspect can reach: first those at its location, among them nodes with a free slot. Runs on them
continue, since a test sends at most some ten seconds of data each way. All decisions are made at heartbeats of the suspect, so no other
node's heartbeat waits for its row.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from sqlalchemy import ColumnElement, delete, or_, select
from sqlalchemy.orm import aliased

from trainwright.contracts.agent_protocol import (
    MAX_LINK_TESTS,
    LinkResult,
    LinkTestReport,
    SelfTestCheck,
    Timers,
)
from trainwright.contracts.agent_protocol import LinkTest as AssignedTest
from trainwright_backend.core.db import Read, Write, now, storable
from trainwright_backend.core.ids import new_id
from trainwright_backend.nodes.inventory import free_slots, inventory_of, is_online, taken_slots, takes_runs
from trainwright_backend.nodes.link_verdict import LinkMeasurement, judge_links
from trainwright_backend.nodes.tables import LinkTest, Node
from trainwright_backend.runs.joined_nodes import is_loopback

NEIGHBOURS = 2
CONNECT_SECONDS = 20.0
EXCHANGE_SECONDS = 60.0
"""Time for sending data both ways. Agents stop earlier."""
MAX_PROBLEM_LENGTH = 300
NO_NEIGHBOUR = "No other healthy node is online that this node could exchange data with, so its connections were not tested."


def link_test_seconds(timers: Timers) -> float:
    """The longest time of a test, from the suspect's heartbeat that starts it. The two nodes hear of it at their next heartbeats."""
    return listen_seconds(timers) + EXCHANGE_SECONDS + 2 * timers.heartbeat_seconds


def listen_seconds(timers: Timers) -> float:
    """How long a node waits for the other one, which hears of the port at its next heartbeat."""
    return CONNECT_SECONDS + 2 * timers.heartbeat_seconds


def check_links(session: Write, suspect: Node, timers: Timers) -> list[SelfTestCheck] | None:
    """The checks of the suspect's connections; None while they are tested. The first call starts the tests."""
    if not inventory_of(suspect).link_tests:  # its agent is of an older version
        return []
    tests = _tests_of(session, suspect)
    if not tests:
        neighbours = _neighbours(session, suspect, timers)
        _start(session, suspect, neighbours)
        return None if neighbours else [SelfTestCheck(name="neighbours", passed=True, detail=NO_NEIGHBOUR)]
    overdue = tests[0].row.begun < now() - timedelta(seconds=link_test_seconds(timers))
    if not overdue and not all(test.is_finished for test in tests):
        return None
    measured = [test.measurement() for test in tests]
    end_link_tests(session, suspect)
    return judge_links(suspect.name, measured)


def end_link_tests(session: Write, suspect: Node) -> None:
    """Forget the tests of a node that is no longer in quarantine, or whose tests were judged."""
    session.execute(delete(LinkTest).where(LinkTest.suspect_id == suspect.id))


def assigned_link_tests(session: Read, node_id: UUID, timers: Timers) -> list[AssignedTest]:
    """The tests that the node takes part in. The node that connects gets a test once the listener has a port."""
    rows = session.execute(
        select(LinkTest, Node.inventory["peer_address"].as_string())
        .join(Node, Node.id == LinkTest.listener_id)
        .where(_takes_part(node_id), or_(LinkTest.listener_id == node_id, LinkTest.port.is_not(None)))
        .order_by(LinkTest.id)
        .limit(MAX_LINK_TESTS)
    )
    return [
        AssignedTest(
            id=str(test.id),
            key=test.key,
            address=None if test.listener_id == node_id else address,
            port=None if test.listener_id == node_id else test.port,
            seconds=listen_seconds(timers),
        )
        for test, address in rows
    ]


def take_link_reports(session: Write, node_id: UUID, reports: Sequence[LinkTestReport]) -> None:
    """Store what a node reports of its tests. Reports of tests that it takes no part in, or that have ended, are ignored."""
    if not reports:
        return
    reported = {report.id: report for report in reports}
    for test in session.scalars(select(LinkTest).where(_takes_part(node_id))):
        report = reported.get(str(test.id))
        if report is None:
            continue
        result = None if report.result is None else report.result.model_dump(mode="json")
        if test.listener_id == node_id:
            test.port, test.listener_result = report.port, result
        else:
            test.connector_result = result
    session.flush()


@dataclass(frozen=True)
class _NamedTest:
    """A test with the names of its nodes."""

    row: LinkTest
    listener: str
    connector: str

    @property
    def is_finished(self) -> bool:
        """Also if the listener could not listen, so that nobody connects."""
        has_connected = self.row.connector_result is not None or self.row.port is None
        return self.row.listener_result is not None and has_connected

    def measurement(self) -> LinkMeasurement:
        results = {self.listener: self.row.listener_result, self.connector: self.row.connector_result}
        known = {
            name: LinkResult.model_validate(result) for name, result in results.items() if result is not None
        }
        problems = [f"{name}: {result.problem}" for name, result in known.items() if result.problem]
        missing = [f"{name} has not reported a result in time" for name in results if name not in known]
        if problems or missing:
            problem = storable(", ".join(problems + missing))[:MAX_PROBLEM_LENGTH]
            return LinkMeasurement((self.listener, self.connector), 0.0, problem)
        speed = min(result.bytes_per_second for result in known.values())
        return LinkMeasurement((self.listener, self.connector), speed, "")


def _tests_of(session: Read, suspect: Node) -> list[_NamedTest]:
    listener, connector = aliased(Node), aliased(Node)
    rows = session.execute(
        select(LinkTest, listener.name, connector.name)
        .join(listener, listener.id == LinkTest.listener_id)
        .join(connector, connector.id == LinkTest.connector_id)
        .where(LinkTest.suspect_id == suspect.id)
        .order_by(LinkTest.id)
    )
    return [_NamedTest(*row) for row in rows]


def _start(session: Write, suspect: Node, neighbours: Sequence[Node]) -> None:
    """Test the suspect with each neighbour, and the neighbours with each other."""
    pairs = [(suspect, neighbour) for neighbour in neighbours]
    pairs += [(neighbours[0], neighbours[1])] if len(neighbours) > 1 else []
    session.add_all(
        LinkTest(
            id=new_id(),
            suspect_id=suspect.id,
            listener_id=listener.id,
            connector_id=connector.id,
            key=secrets.token_hex(32),
            begun=now(),
        )
        for listener, connector in pairs
    )
    session.flush()


def _neighbours(session: Read, suspect: Node, timers: Timers) -> list[Node]:
    """The healthy nodes to test with: first those at the suspect's location, among them those with a free slot."""
    own = inventory_of(suspect)
    if own.peer_address is None:
        return []
    taken = taken_slots(session)
    found: list[tuple[bool, bool, str, Node]] = []
    for node in session.scalars(select(Node).where(Node.id != suspect.id)):
        inventory = inventory_of(node)
        if not takes_runs(node) or not is_online(node, now(), timers):
            continue
        if not inventory.link_tests or inventory.peer_address is None:
            continue
        if is_loopback(inventory.peer_address) == is_loopback(own.peer_address):
            is_busy = not any(free_slots(node, taken.get(node.id, {})).values())
            found.append((inventory.location != own.location, is_busy, node.name, node))
    return [node for *_, node in sorted(found, key=lambda item: item[:3])[:NEIGHBOURS]]


def _takes_part(node_id: UUID) -> ColumnElement[bool]:
    return or_(LinkTest.listener_id == node_id, LinkTest.connector_id == node_id)
