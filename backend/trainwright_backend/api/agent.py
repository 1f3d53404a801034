"""The routes for agents and supervisors (`trainwright.contracts.agent_protocol`): join, heartbeat, claim, renew, send,
end."""

from typing import Annotated

from fastapi import Body, Query

from trainwright.contracts.agent_protocol import (
    Batch,
    CheckpointCommit,
    Claim,
    ClaimRequest,
    CommitReply,
    EndReply,
    EndReport,
    ExportJob,
    ExportRequest,
    Heartbeat,
    HeartbeatReply,
    Join,
    JoinReply,
    OffsetReply,
    Offsets,
    Renewal,
    RenewalReply,
    UploadLinks,
    UploadRequest,
)
from trainwright_backend.api.body_limits import AGENT
from trainwright_backend.api.dependencies import CurrentDatabase, CurrentSettings, Store, WriteSession
from trainwright_backend.attempts import attempt_end, claims, ingest, renewals
from trainwright_backend.core.ids import MAX_INTEGER, public_id
from trainwright_backend.core.policy import AgentRoute, GuardedRoute, public
from trainwright_backend.core.resource_router import ResourceRouter
from trainwright_backend.nodes import service
from trainwright_backend.nodes.policies import AsNode

join_router = ResourceRouter(prefix="/agent", tags=["agents"], route_class=GuardedRoute)
node_router = ResourceRouter(prefix="/agent", tags=["agents"], route_class=AgentRoute)


@join_router.post("/join", dependencies=[public("the one-time join token in the body is the right")])
def join_node(session: WriteSession, settings: CurrentSettings, body: Join) -> JoinReply:
    """Admit a machine as a node."""
    node, token = service.join(session, settings, body)
    return JoinReply(
        node_id=public_id("node", node.id),
        node_token=token,
        hints_url=settings.resolved_agents_hints_url,
        timers=settings.timers,
    )


@node_router.post("/heartbeat")
def send_heartbeat(
    node: AsNode, session: WriteSession, settings: CurrentSettings, body: Heartbeat
) -> HeartbeatReply:
    """Report that the node is alive; the response lists what is placed on it."""
    return service.heartbeat(session, node.node_id, body, settings)


@node_router.post("/runs/{run}/claim")
def claim_run(
    node: AsNode, session: WriteSession, store: Store, settings: CurrentSettings, run: str, body: ClaimRequest
) -> Claim:
    """Claim a run that is placed on the node."""
    return claims.claim(session, store, node.node_id, run, body.claim_id, settings.timers)


@node_router.post("/runs/{run}/renew")
def renew_lease(
    node: AsNode, session: WriteSession, settings: CurrentSettings, run: str, body: Renewal
) -> RenewalReply:
    """Extend a lease; the response is an order."""
    return renewals.renew(session, node.node_id, run, body, settings.timers)


@node_router.post("/runs/{run}/batches", max_body_size=AGENT)
def store_batch(node: AsNode, session: WriteSession, run: str, body: Batch) -> OffsetReply:
    """Store a range of events.jsonl."""
    return OffsetReply(offset=ingest.store_batch(session, node.node_id, run, body))


@node_router.post("/runs/{run}/logs/{file}", max_body_size=AGENT)
def store_log(
    node: AsNode,
    session: WriteSession,
    run: str,
    file: str,
    attempt: Annotated[int, Query(ge=1)],
    fence: Annotated[int, Query(ge=1)],
    offset: Annotated[int, Query(ge=0)],
    content: Annotated[bytes, Body(media_type="application/octet-stream")] = b"",
) -> OffsetReply:
    """Store a range of a log."""
    log_range = ingest.LogRange(file, attempt, fence, offset, content)
    return OffsetReply(offset=ingest.store_log(session, node.node_id, run, log_range))


@node_router.post("/runs/{run}/uploads", max_body_size=AGENT)
def request_upload(
    node: AsNode, database: CurrentDatabase, store: Store, run: str, body: UploadRequest
) -> UploadLinks:
    """Announce a checkpoint, and get upload links for the files that the store lacks."""
    return UploadLinks(links=ingest.request_upload(database, store, node.node_id, run, body))


@node_router.post("/runs/{run}/checkpoints")
def commit_checkpoint(
    node: AsNode, database: CurrentDatabase, store: Store, run: str, body: CheckpointCommit
) -> CommitReply:
    """Make an uploaded checkpoint visible."""
    committed = ingest.commit_checkpoint(database, store, node.node_id, run, body)
    return CommitReply(checkpoint_id=public_id("ckpt", committed))


@node_router.post("/runs/{run}/export-job")
def request_export_job(
    node: AsNode,
    session: WriteSession,
    store: Store,
    settings: CurrentSettings,
    run: str,
    body: ExportRequest,
) -> ExportJob:
    """Get the export of an attempt on several nodes, once its last checkpoint is committed."""
    return claims.export_job(session, store, node.node_id, run, body, settings.timers)


@node_router.post("/runs/{run}/end")
def report_end(
    node: AsNode, session: WriteSession, settings: CurrentSettings, run: str, body: EndReport
) -> EndReply:
    """Report the end of an attempt."""
    return attempt_end.report_end(session, node.node_id, run, body, settings.timers)


@node_router.get("/runs/{run}/offsets")
def show_offsets(
    node: AsNode, session: WriteSession, run: str, attempt: Annotated[int, Query(ge=1, le=MAX_INTEGER)]
) -> Offsets:
    """How many bytes of each file of an attempt are stored."""
    return Offsets(files=ingest.offsets(session, node.node_id, run, attempt))


router = ResourceRouter()
router.include_router(join_router)
router.include_router(node_router)
