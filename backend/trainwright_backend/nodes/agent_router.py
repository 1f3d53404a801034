"""HTTP of agents and supervisors (`trainwright.contracts.agent_protocol`): join, live, claim, renew, ship, end."""

from typing import Annotated

from fastapi import APIRouter, Body, Query, Request

from trainwright.contracts.agent_protocol import (
    Batch,
    CheckpointCommit,
    Claim,
    ClaimRequest,
    Committed,
    Ended,
    EndReport,
    Heartbeat,
    HeartbeatReply,
    Join,
    Joined,
    Offsets,
    Renewal,
    RenewalReply,
    Stored,
    UploadLinks,
    UploadRequest,
)
from trainwright_backend.core.db import WriteSession
from trainwright_backend.core.ids import public_id
from trainwright_backend.core.policy import GuardedRoute, public
from trainwright_backend.core.settings import Settings
from trainwright_backend.core.storage import SHIPPED, Store
from trainwright_backend.nodes import claims, ends, renewals, service, shipping
from trainwright_backend.nodes.policies import AsNode

router = APIRouter(prefix="/agent", tags=["agents"], route_class=GuardedRoute)


@router.post("/join", dependencies=[public("the one-time join token in the body is the right")])
def join_node(session: WriteSession, request: Request, body: Join) -> Joined:
    """A machine becomes a node."""
    settings = _settings(request)
    node, token = service.join(session, settings, body)
    return Joined(
        node_id=public_id("node", node.id),
        node_token=token,
        hints_url=settings.resolved_agents_hints_url,
        timers=settings.timers,
    )


@router.post("/heartbeat")
def send_heartbeat(node: AsNode, session: WriteSession, request: Request, body: Heartbeat) -> HeartbeatReply:
    """The node lives; the answer says what is placed on it."""
    settings = _settings(request)
    return HeartbeatReply(
        placements=service.heartbeat(session, node.node_id, body, settings.timers),
        timers=settings.timers,
        hints_url=settings.resolved_agents_hints_url,
    )


@router.post("/runs/{run}/claim")
def claim_run(
    node: AsNode, session: WriteSession, store: Store, request: Request, run: str, body: ClaimRequest
) -> Claim:
    """Take a run that is placed on the node."""
    return claims.claim(session, store, node.node_id, run, body.claim_id, _settings(request).timers)


@router.post("/runs/{run}/renew")
def renew_lease(
    node: AsNode, session: WriteSession, request: Request, run: str, body: Renewal
) -> RenewalReply:
    """Keep a lease; the answer is an order."""
    return renewals.renew(session, node.node_id, run, body, _settings(request).timers)


@router.post("/runs/{run}/batches", max_body_size=SHIPPED)
def store_batch(node: AsNode, session: WriteSession, run: str, body: Batch) -> Stored:
    """Store a stretch of events.jsonl."""
    return Stored(offset=shipping.store_batch(session, node.node_id, run, body))


@router.post("/runs/{run}/logs/{file}", max_body_size=SHIPPED)
def store_log(
    node: AsNode,
    session: WriteSession,
    run: str,
    file: str,
    attempt: Annotated[int, Query(ge=1)],
    fence: Annotated[int, Query(ge=1)],
    offset: Annotated[int, Query(ge=0)],
    content: Annotated[bytes, Body(media_type="application/octet-stream")] = b"",
) -> Stored:
    """Store a stretch of a log."""
    stretch = shipping.LogStretch(file, attempt, fence, offset, content)
    return Stored(offset=shipping.store_log(session, node.node_id, run, stretch))


@router.post("/runs/{run}/uploads", max_body_size=SHIPPED)
def request_upload(
    node: AsNode, request: Request, store: Store, run: str, body: UploadRequest
) -> UploadLinks:
    """Announce a checkpoint, and get links for what the store lacks."""
    return UploadLinks(
        links=shipping.request_upload(request.app.state.database, store, node.node_id, run, body)
    )


@router.post("/runs/{run}/checkpoints")
def commit_checkpoint(
    node: AsNode, request: Request, store: Store, run: str, body: CheckpointCommit
) -> Committed:
    """Make an uploaded checkpoint visible."""
    committed = shipping.commit_checkpoint(request.app.state.database, store, node.node_id, run, body)
    return Committed(checkpoint_id=public_id("ckpt", committed))


@router.post("/runs/{run}/end")
def report_end(node: AsNode, session: WriteSession, request: Request, run: str, body: EndReport) -> Ended:
    """Hand a placement back."""
    return ends.report_end(session, node.node_id, run, body, _settings(request).timers)


@router.get("/runs/{run}/offsets")
def show_offsets(
    node: AsNode, session: WriteSession, run: str, attempt: Annotated[int, Query(ge=1)]
) -> Offsets:
    """How far each file of an attempt is stored."""
    return Offsets(files=shipping.offsets(session, node.node_id, run, attempt))


def _settings(request: Request) -> Settings:
    settings = request.app.state.settings
    assert isinstance(settings, Settings)
    return settings
