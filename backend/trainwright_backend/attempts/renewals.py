"""Renewals: the supervisor's messages that extend a lease, and the orders in the replies.

A supervisor starts nothing until a response says `go`. If a renewal is ahead of the row, the run moves through
the states between, with one event for each. Leases depend on the renewal's number, which only increases here.
"""

from uuid import UUID

from sqlalchemy import and_, exists, not_, select

from trainwright.contracts.agent_protocol import Phase, Renewal, RenewalOrder, RenewalReply, Timers
from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.run_state import SAVING_VERDICTS, RunState, Verdict
from trainwright_backend.attempts.advance import advance
from trainwright_backend.attempts.agent_silence import is_agent_silent
from trainwright_backend.attempts.fencing import check_placement, placement_of_claim, run_of_node
from trainwright_backend.attempts.hang_detection import is_rank_stopped, note_stall
from trainwright_backend.core.db import Read, Write, now, storable
from trainwright_backend.runs.tables import Placement, PlacementEnd, Run
from trainwright_backend.runs.transitions import settle

MAX_PROGRESS_LENGTH = 200

REACHED = {
    Phase.STARTING: RunState.STARTING,
    Phase.RUNNING: RunState.RUNNING,
    Phase.COMPLETING: RunState.COMPLETING,
}


def renew(session: Write, node_id: UUID, run_id: str, request: Renewal, timers: Timers) -> RenewalReply:
    """Extend the placement's lease and return the supervisor's order.

    Raises:
        NotFound: the run was deleted.
        Conflict: ``stale_fence``: the lease expired, or the run continues elsewhere.
    """
    run = run_of_node(session, node_id, run_id)
    placement = placement_of_claim(session, node_id, run, request.claim_id)
    if placement.closed is PlacementEnd.ENDED:
        return RenewalReply(order=RenewalOrder.LEAVE, timers=timers)
    check_placement(run, placement, request.fence)
    if request.phase is Phase.ENDED:
        return RenewalReply(order=_ended(session, run, placement, request, timers), timers=timers)
    placement.peer = request.peer
    _keep(session, run, placement, request.progress, timers)
    if run.state is not RunState.STOPPING:
        advance(session, run, REACHED[request.phase])  # first, since only ranks that have made a step hang
    if note_stall(session, run, placement, request.stall, timers):
        return RenewalReply(order=RenewalOrder.KILL, timers=timers)
    if run.state is RunState.STOPPING:
        return RenewalReply(
            order=_order_to_stop(session, run), timers=timers, rank_stopped=is_rank_stopped(session, run)
        )
    order = RenewalOrder.WAIT if run.state is RunState.LEASED else RenewalOrder.GO
    return RenewalReply(
        order=order,
        timers=timers,
        rendezvous=_rendezvous(session, run),
        rank_stopped=is_rank_stopped(session, run),
    )


def _rendezvous(session: Read, run: Run) -> str | None:
    """The rendezvous address of the launchers of a run on several nodes, once all nodes have fetched their files."""
    if run.nodes == 1:
        return None
    attempt = (Placement.run_id == run.id, Placement.fence == run.fence)
    peers = session.scalars(select(Placement.peer).where(*attempt).order_by(Placement.node_rank)).all()
    return peers[0] if all(peers) else None


def _order_to_stop(session: Write, run: Run) -> RenewalOrder:
    """Ranks save together or not at all: once one node has ended or gone silent, the others are only stopped."""
    if run.verdict not in SAVING_VERDICTS:
        return RenewalOrder.KILL
    saved = and_(
        Placement.closed == PlacementEnd.ENDED, Placement.end_reason.in_((EndCode.SAVED, EndCode.FINISHED))
    )
    gone = exists().where(
        Placement.run_id == run.id, Placement.fence == run.fence, Placement.closed.is_not(None), not_(saved)
    )
    return RenewalOrder.KILL if session.scalar(select(gone)) else RenewalOrder.SAVE


def _keep(session: Write, run: Run, placement: Placement, progress: str, timers: Timers) -> None:
    placement.renewal += 1
    placement.renewed = now()
    # If the response is lost, the supervisor continues with the longer lease that it was granted before. So within an attempt
    # the reaper's lease never becomes shorter; a shorter setting applies to the next claims.
    placement.lease_seconds = max(placement.lease_seconds or 0.0, timers.lease_seconds)
    run.progress = storable(progress)[:MAX_PROGRESS_LENGTH]
    session.flush()


def _ended(session: Write, run: Run, placement: Placement, request: Renewal, timers: Timers) -> RenewalOrder:
    """The order for a supervisor whose children have ended. A run to be cancelled or failed ends without the
    agent."""
    if run.state is RunState.STOPPING and run.verdict in (Verdict.FAIL, Verdict.CANCEL):
        placement.closed = PlacementEnd.ENDED
        placement.end_reason = request.exit.code if request.exit is not None else EndCode.STOPPED
        session.flush()
        settle(session, run)
        return RenewalOrder.LEAVE
    if is_agent_silent(session, placement, timers):
        return RenewalOrder.LEAVE
    _keep(session, run, placement, request.progress, timers)
    return RenewalOrder.WAIT
