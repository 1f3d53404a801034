"""Renewals: the supervisor's word that keeps a placement, and the order it gets back.

A supervisor starts nothing before an answer says `go`. A renewal that is ahead of the row walks the states between,
one event each. Leases go by the renewal's number, which only grows here.
"""

from uuid import UUID

from sqlalchemy import exists, select

from trainwright.contracts.agent_protocol import Order, Phase, Renewal, RenewalReply, Timers
from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.job_spec import JobKind
from trainwright.contracts.run_state import ADVANCING, RunState, Verdict
from trainwright_backend.core.db import Write, now, storable
from trainwright_backend.nodes.seats import check_seat, run_of_node, seat_of_claim
from trainwright_backend.nodes.tables import Node
from trainwright_backend.runs.moves import move, settle
from trainwright_backend.runs.tables import Closed, Placement, Run
from trainwright_backend.runs.wake import wake_run

AGENT_SILENT_SECONDS = 300.0
"""At the standard lease: without a heartbeat for so long, nobody will report an end any more."""
LONGEST_PROGRESS = 200

REACHED = {
    Phase.STARTING: RunState.STARTING,
    Phase.RUNNING: RunState.RUNNING,
    Phase.COMPLETING: RunState.COMPLETING,
}
_SAID = {RunState.RUNNING: "training", RunState.COMPLETING: "trained to the last step"}


def renew(session: Write, node_id: UUID, run_id: str, said: Renewal, timers: Timers) -> RenewalReply:
    """Keep the placement and tell the supervisor what to do.

    Raises:
        NotFound: the run was deleted.
        Conflict: ``stale_fence``: the lease lapsed, or the run went on elsewhere.
    """
    run = run_of_node(session, node_id, run_id)
    seat = seat_of_claim(session, node_id, run, said.claim_id)
    if seat.closed is Closed.ENDED:
        return RenewalReply(order=Order.LEAVE, timers=timers)
    check_seat(run, seat, said.fence)
    if said.phase is Phase.ENDED:
        return RenewalReply(order=_ended(session, run, seat, said, timers), timers=timers)
    _keep(session, run, seat, said.progress, timers)
    if run.state is RunState.STOPPING:
        return RenewalReply(order=_order_to_stop(session, run), timers=timers)
    walk(session, run, REACHED[said.phase])
    order = Order.WAIT if run.state is RunState.LEASED else Order.GO
    return RenewalReply(order=order, timers=timers)


def walk(session: Write, run: Run, target: RunState) -> None:
    """Move the run forward to ``target`` through the states between; a target behind it changes nothing."""
    if run.state is RunState.LEASED:  # other nodes have not claimed yet
        return
    for state in ADVANCING[ADVANCING.index(run.state) + 1 : ADVANCING.index(target) + 1]:
        if state is RunState.RUNNING and target is RunState.COMPLETING and _only_exports(session, run):
            continue
        move(session, run, state, _SAID[state])


def _order_to_stop(session: Write, run: Run) -> Order:
    """Ranks save together or not at all: once one node has ended or fallen silent, the others are only stopped."""
    if run.verdict is not Verdict.PAUSE:
        return Order.KILL
    gone = exists().where(
        Placement.run_id == run.id, Placement.fence == run.fence, Placement.closed.is_not(None)
    )
    return Order.KILL if session.scalar(select(gone)) else Order.SAVE


def _keep(session: Write, run: Run, seat: Placement, progress: str, timers: Timers) -> None:
    seat.renewal += 1
    seat.renewed = now()
    # The answer may be lost, and then the supervisor goes by a longer lease that it was granted before: so within an
    # attempt the reaper's lease only grows, and a shortened setting is for the next claims.
    seat.lease_seconds = max(seat.lease_seconds or 0.0, timers.lease_seconds)
    shown = storable(progress)[:LONGEST_PROGRESS]
    if run.progress != shown:
        run.progress = shown
        wake_run(session, run.id)
    session.flush()


def _ended(session: Write, run: Run, seat: Placement, said: Renewal, timers: Timers) -> Order:
    """All children are gone. A run that is to be cancelled or failed needs no agent to end."""
    if run.state is RunState.STOPPING and run.verdict in (Verdict.FAIL, Verdict.CANCEL):
        seat.closed = Closed.ENDED
        seat.end_reason = said.exit.code if said.exit is not None else EndCode.STOPPED
        session.flush()
        settle(session, run)
        return Order.LEAVE
    heartbeat = session.get_one(Node, seat.node_id).last_heartbeat
    silent_seconds = (now() - heartbeat).total_seconds() if heartbeat is not None else float("inf")
    if silent_seconds > AGENT_SILENT_SECONDS * timers.scale:
        return Order.LEAVE
    _keep(session, run, seat, said.progress, timers)
    return Order.WAIT


def _only_exports(session: Write, run: Run) -> bool:
    seats = select(Placement.job).where(Placement.run_id == run.id, Placement.fence == run.fence)
    job = session.scalars(seats.limit(1)).first()
    return job is not None and job["kind"] == JobKind.EXPORT
