"""Quarantine: a node that is suspected to be faulty gets no runs until it passes a self-test.

A node is suspected after its second failure within a day, or if a rank on it made a run hang. Only failures of the
machine count: it restarted, or its lease expired. A lost supervisor does not count, because a run that needs too much
memory has the same effect. Nor does it count when a node stops a run because it cannot reach the platform: an outage of
the platform affects all nodes at once.

The reply to a heartbeat asks the agent for the self-test. A site admin can quarantine a node, and release it without a test.
"""

from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import delete, func, select

from trainwright.contracts.agent_protocol import SelfTestReport, Timers
from trainwright.contracts.api.nodes import NodeFailure as ShownFailure
from trainwright.contracts.api.nodes import Quarantine, SelfTestResult
from trainwright.contracts.api.notices import NoticeKind
from trainwright.contracts.api.webhooks import WebhookEvent
from trainwright.contracts.end_codes import EndCode
from trainwright_backend.core.db import Read, Write, now, storable
from trainwright_backend.core.ids import new_id
from trainwright_backend.nodes.link_tests import check_links, end_link_tests
from trainwright_backend.nodes.tables import Node, NodeFailure
from trainwright_backend.runs.notify import notify_control
from trainwright_backend.runs.tables import Placement, Run
from trainwright_backend.teams.notices import notify_members, notify_site_admins
from trainwright_backend.teams.webhooks import queue_message

FAILURE_CODES = frozenset({EndCode.NODE_REBOOTED, EndCode.LEASE_EXPIRED, EndCode.HANG})
MAX_FAILURES = 2
WINDOW = timedelta(hours=24)
LINKS_AGAIN_AFTER = timedelta(minutes=10)
"""Time until connections that failed their test are tested again, as agents repeat the other checks."""


def note_failure(session: Write, node_id: UUID | None, code: EndCode, message: str) -> None:
    """Record a failure of a node, and quarantine the node if it is suspected now. Other end codes are ignored."""
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
    elif count >= MAX_FAILURES:
        quarantine(session, node, f"It failed {count} times within 24 hours. The last failure: {message}")


def quarantine(session: Write, node: Node, reason: str) -> None:
    """Give the node no runs until it passes a self-test. Claimed runs continue. A node that is already in quarantine keeps
    its first reason."""
    if node.quarantined is None:
        node.quarantined, node.quarantine_reason = now(), storable(reason)
        session.flush()
        _tell(session, node)
        notify_control(session)  # it withdraws unclaimed placements


def _tell(session: Write, node: Node) -> None:
    """Tell site admins, and the teams that had a run on the node in the last day. The reason may name runs of others, so teams
    are not told it."""
    since = now() - timedelta(days=1)
    recent = select(Run.team_id).join(Placement, Placement.run_id == Run.id)
    teams = recent.where(Placement.node_id == node.id, Placement.placed > since).distinct()
    kind = NoticeKind.NODE_QUARANTINED
    told = notify_site_admins(
        session, kind, f"{node.name} is in quarantine: {node.quarantine_reason}", "nodes"
    )
    sentence = f"{node.name}, on which the team had a run in the last day, is in quarantine until it passes a self-test."
    for team_id in session.scalars(teams.order_by(Run.team_id)).all():
        queue_message(session, team_id, WebhookEvent.NODE_QUARANTINED, {"node": node.name})
        told |= notify_members(session, kind, team_id, sentence, "runs", besides=told)


def release(session: Write, node: Node) -> None:
    """End the quarantine of a node. Its failures of the last day still count."""
    if node.quarantined is not None:
        node.quarantined, node.quarantine_reason = None, ""
        end_link_tests(session, node)
        session.flush()
        notify_control(session)


def wanted_self_test(node: Node) -> str | None:
    """The id of the self-test that the node has to pass; None if it is not in quarantine."""
    return None if node.quarantined is None else node.quarantined.isoformat()


def take_self_test(session: Write, node: Node, report: SelfTestReport | None, timers: Timers) -> None:
    """Take the result of the self-test that the node was asked for.

    If the node passes its own checks, its connections to neighbours are tested (`link_tests`). Passing these too ends the quarantine.
    An agent repeats its result in every heartbeat until its next test; the time of the first report is kept.
    """
    if report is None or report.id != wanted_self_test(node) or _is_stored(node, report):
        return
    links = check_links(session, node, timers) if report.passed else []
    if links is None:
        return
    checks = [*report.checks, *links]
    result = SelfTestResult(time=now(), passed=all(check.passed for check in checks), checks=checks)
    node.self_test = result.model_dump(mode="json")
    if result.passed:
        release(session, node)


def _is_stored(node: Node, report: SelfTestReport) -> bool:
    """Whether the result was already stored during this quarantine, and connections that failed need not be tested again
    yet."""
    if node.self_test is None or node.quarantined is None:
        return False
    stored = SelfTestResult.model_validate(node.self_test)
    if stored.time < node.quarantined or stored.checks[: len(report.checks)] != report.checks:
        return False
    return not report.passed or stored.time > now() - LINKS_AGAIN_AFTER


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
