"""Quarantine: a node that is suspected to be faulty gets no runs until it passes a self-test.

A node is suspected at its second failure within a day, or if a rank on it kept a run from making progress. Failures are
those of the machine: it restarted, or its lease expired. A lost supervisor is not one, because a run that needs too
much memory causes it as well; nor is a node that stopped a run by itself because it could not reach the platform, because an
outage of the platform does that to all nodes at once.

The agent is asked for the self-test in the answers to its heartbeats. A site admin can quarantine a node, and
release one without a test.
"""

from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import delete, func, select

from trainwright.contracts.agent_protocol import SelfTestReport
from trainwright.contracts.api.nodes import NodeFailure as ShownFailure
from trainwright.contracts.api.nodes import Quarantine, SelfTestResult
from trainwright.contracts.end_codes import EndCode
from trainwright_backend.core.db import Read, Write, now, storable
from trainwright_backend.core.ids import new_id
from trainwright_backend.nodes.tables import Node, NodeFailure
from trainwright_backend.runs.notify import notify_control

FAILURE_CODES = frozenset({EndCode.NODE_REBOOTED, EndCode.LEASE_EXPIRED, EndCode.HANG})
MOST_FAILURES = 2
WINDOW = timedelta(hours=24)


def note_failure(session: Write, node_id: UUID | None, code: EndCode, message: str) -> None:
    """Record a failure of a node, and quarantine it if that was one too many. Ends of other kinds are ignored."""
    if code not in FAILURE_CODES or node_id is None:
        return
    node = session.get(Node, node_id, with_for_update=True, populate_existing=True)
    if node is None:
        return
    session.execute(delete(NodeFailure).where(NodeFailure.node_id == node_id, NodeFailure.time < _begin()))
    failure = NodeFailure(
        id=new_id(), node_id=node_id, time=now(), code=code.value, message=storable(message)
    )
    session.add(failure)
    session.flush()
    count = session.scalar(select(func.count()).where(NodeFailure.node_id == node_id)) or 0
    if code is EndCode.HANG:
        quarantine(session, node, f"A run hung because of it. {message}")
    elif count >= MOST_FAILURES:
        quarantine(
            session, node, f"It failed {count} times within 24 hours, the last time because: {message}"
        )


def quarantine(session: Write, node: Node, reason: str) -> None:
    """Give the node no runs until it passes a self-test. Claimed runs continue. One that is in quarantine stays there
    for the first reason."""
    if node.quarantined is None:
        node.quarantined, node.quarantine_reason = now(), storable(reason)
        session.flush()
        notify_control(session)  # it withdraws unclaimed placements


def release(session: Write, node: Node) -> None:
    """End the quarantine of a node. Its failures of the last day still count."""
    if node.quarantined is not None:
        node.quarantined, node.quarantine_reason = None, ""
        session.flush()
        notify_control(session)


def wanted_self_test(node: Node) -> str | None:
    """What identifies the self-test that the node has to pass; None if it is not in quarantine."""
    return None if node.quarantined is None else node.quarantined.isoformat()


def take_self_test(session: Write, node: Node, report: SelfTestReport | None) -> None:
    """Store the result of the self-test that the node was asked for; one that it passed ends its quarantine. An agent repeats
    the result of a failed test in each heartbeat until the next test: the time is that of the first."""
    if report is None or report.id != wanted_self_test(node) or _is_stored(node, report):
        return
    result = SelfTestResult(time=now(), passed=report.passed, checks=report.checks)
    node.self_test = result.model_dump(mode="json")
    if report.passed:
        release(session, node)


def _is_stored(node: Node, report: SelfTestReport) -> bool:
    """Whether the result has been stored since the node is in quarantine."""
    if node.self_test is None or node.quarantined is None:
        return False
    stored = SelfTestResult.model_validate(node.self_test)
    return stored.time >= node.quarantined and stored.checks == report.checks


def shown_quarantine(node: Node) -> Quarantine | None:
    """What users see of the node's quarantine."""
    if node.quarantined is None:
        return None
    return Quarantine(since=node.quarantined, reason=node.quarantine_reason)


def recent_failures(session: Read, node: Node) -> list[ShownFailure]:
    """The node's failures of the last day, newest first."""
    recent = select(NodeFailure).where(NodeFailure.node_id == node.id, NodeFailure.time >= _begin())
    return [
        ShownFailure(time=row.time, code=EndCode(row.code), message=row.message)
        for row in session.scalars(recent.order_by(NodeFailure.time.desc(), NodeFailure.id.desc()))
    ]


def _begin() -> datetime:
    return now() - WINDOW
