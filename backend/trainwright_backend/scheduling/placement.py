"""Placing queued runs on the nodes that `scheduling` chose, and taking back placements that no agent claims.

Each run is placed in its own transaction, under the locks of the run, its nodes and its team's quota, if it still fits. So
an error with one run does not stop the others, and no two runs are ever locked at once.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from sqlalchemy import Select, bindparam, delete, insert, or_, select, update

from trainwright.contracts.agent_protocol import Timers
from trainwright.contracts.api.datasets import PreparationState
from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.run_state import RunState
from trainwright_backend.core.db import Read, Write, now
from trainwright_backend.core.ids import new_id, public_id
from trainwright_backend.core.message_queue import enqueuer_of
from trainwright_backend.datasets.preparations import get_preparation, why_too_short
from trainwright_backend.datasets.tables import Preparation
from trainwright_backend.nodes.inventory import is_online, taken_slots
from trainwright_backend.nodes.tables import Node
from trainwright_backend.runs.notify import notify_run
from trainwright_backend.runs.state_text import end_text
from trainwright_backend.runs.stored_spec import stored_spec
from trainwright_backend.runs.tables import Placement, PlacementSlot, Run
from trainwright_backend.runs.transitions import lock_run, move, release_slots
from trainwright_backend.scheduling.fewer_nodes import may_run_on
from trainwright_backend.scheduling.limit_gate import LimitGate
from trainwright_backend.scheduling.node_capacity import NodeCapacity
from trainwright_backend.scheduling.placement_round import Backfill
from trainwright_backend.scheduling.requirements import needs_of
from trainwright_backend.teams.slot_quota import hold
from trainwright_backend.teams.team_locks import lock_team

HINT_SECONDS = 15.0
"""Time before a hint is repeated (at the standard lease)."""


def place(
    session: Write, run_id: UUID, node_ids: Sequence[UUID], timers: Timers, backfill: Backfill | None = None
) -> bool:
    """Place a queued run on its nodes, if it still fits them and its team's limit; a run whose data is shorter than one
    sequence fails instead. ``backfill``: it is placed ahead of its turn.

    Only the leader of the control loops calls this, but the locks and the slots' primary key would protect
    against two.
    """
    run = lock_run(session, run_id)
    if run is None or run.state is not RunState.QUEUED or _is_placed(session, run):
        return False
    locked = _lock_nodes(session, node_ids)
    nodes = [locked[node_id] for node_id in node_ids if node_id in locked]
    nodes = [node for node in nodes if node.name not in run.avoided_nodes]
    if len(nodes) < len(node_ids) or not may_run_on(run, len(nodes)) or _fail_too_short(session, run):
        return False
    taken, needs = taken_slots(session, node_ids), needs_of(run, len(nodes))
    found = [NodeCapacity.measure(node, taken.get(node.id, {})) for node in nodes]
    for node, capacity in zip(nodes, found, strict=True):
        if not capacity.takes_runs or not is_online(node, now(), timers):
            return False
        if not capacity.can_run_now(needs):
            return False
    lock_team(session, run.team_id)  # nobody else counts its runs now
    if LimitGate.load(session, [run]).why_waits(run) is not None:
        return False
    slots = needs.slots * len(nodes)
    if not hold(session, run.team_id, run.device, slots, run.id):
        return False
    run.nodes, run.slots = len(nodes), slots
    indices = [capacity.free[run.device][: needs.slots] for capacity in found]
    _add_placements(session, run, dict(zip(nodes, indices, strict=True)))
    run.backfill_for = None if backfill is None else backfill.ahead_of
    run.backfill_until = None if backfill is None else backfill.until
    early = "" if backfill is None else ", ahead of its turn"
    run.waiting_reason = f"placed on {_names(nodes)}{early}"
    run.hinted_at = now()
    notify_run(session, run.id)
    _send_hints(session, run, nodes)
    return True


def _lock_nodes(session: Write, node_ids: Sequence[UUID]) -> dict[UUID, Node]:
    """The nodes that exist, locked in the order of their ids: two placements on the same nodes do not wait for each other."""
    locked = select(Node).where(Node.id.in_(node_ids)).order_by(Node.id).with_for_update()
    return {node.id: node for node in session.scalars(locked.execution_options(populate_existing=True))}


def explain(session: Write, reasons: dict[UUID, str]) -> None:
    """Store what queued runs wait for."""
    if not reasons:
        return
    rows = [{"explained": run_id, "new_reason": reason} for run_id, reason in sorted(reasons.items())]
    queued = update(Run).where(Run.id == bindparam("explained"), Run.state == RunState.QUEUED)
    session.connection().execute(queued.values(waiting_reason=bindparam("new_reason")), rows)
    for run_id in reasons:
        notify_run(session, run_id)


def unprepared() -> Select[UUID]:
    """The queued runs whose data could not be prepared."""
    return (
        select(Run.id)
        .join(Preparation, Preparation.id == Run.preparation_id)
        .where(Run.state == RunState.QUEUED, Preparation.state == PreparationState.FAILED)
    )


def fail_unprepared(session: Write, run_id: UUID) -> None:
    """Fail a queued run whose data could not be prepared."""
    run = lock_run(session, run_id)
    if run is None or run.state is not RunState.QUEUED:
        return
    preparation = session.get_one(Preparation, run.preparation_id)
    if preparation.state == PreparationState.FAILED:
        message = end_text(EndCode.DATA, preparation.error or "")
        move(session, run, RunState.FAILED, message, reason=EndCode.DATA)


def _fail_too_short(session: Write, run: Run) -> bool:
    """Fail a run with too little data, which was not prepared yet when the run was submitted."""
    sequence_tokens = stored_spec(run).batch.sequence_tokens
    assert run.preparation_id is not None, "a run that has not ended keeps its data"
    why = why_too_short(get_preparation(session, run.team_id, run.preparation_id), sequence_tokens)
    if why is None:
        return False
    move(session, run, RunState.FAILED, why, reason=EndCode.DATA)
    return True


def unclaimed(timers: Timers) -> Select[UUID]:
    """Unclaimed placements that are overdue, or whose node is drained or in quarantine."""
    closed = or_(Node.draining, Node.quarantined.is_not(None))
    drained = Placement.node_id.in_(select(Node.id).where(closed))
    late = Placement.placed < now() - timedelta(seconds=timers.claim_seconds)
    return select(Placement.id).where(Placement.claim_id.is_(None), or_(late, drained))


def withdraw(session: Write, placement_id: UUID) -> None:
    """Withdraw all placements of the run if this one was not claimed, so that the run is placed again.

    Placements that were claimed in time have started nothing, and their supervisors' next renewals are refused.
    """
    placement = session.get(Placement, placement_id)
    run = None if placement is None else lock_run(session, placement.run_id)
    if run is None or placement is None:
        return
    session.refresh(placement)
    if placement.claim_id is not None or run.state not in (RunState.QUEUED, RunState.LEASED):
        return
    if run.state is RunState.LEASED:
        move(session, run, RunState.QUEUED, f"{placement.node_name} did not claim the run in time")
        session.execute(delete(Placement).where(Placement.run_id == run.id, Placement.fence == run.fence))
    release_slots(session, run)


def repeat_hints(session: Write, timers: Timers) -> None:
    """Repeat the hints to online nodes that have not claimed the runs placed on them."""
    before = now() - timedelta(seconds=HINT_SECONDS * timers.scale)
    waiting = (
        select(Run, Node)
        .join(Placement, Placement.run_id == Run.id)
        .join(Node, Node.id == Placement.node_id)
        .where(Placement.claim_id.is_(None), Run.hinted_at < before)
    )
    for run, node in session.execute(waiting).all():
        if is_online(node, now(), timers):
            session.execute(update(Run).where(Run.id == run.id).values(hinted_at=now()))
            _send_hints(session, run, [node])


def _is_placed(session: Read, run: Run) -> bool:
    waiting = select(Placement.id).where(Placement.run_id == run.id, Placement.claim_id.is_(None))
    return session.scalars(waiting.limit(1)).first() is not None


def _add_placements(session: Write, run: Run, slots: Mapping[Node, list[int]]) -> None:
    """Place the run on these slots of its nodes, in the order of their ranks."""
    placements: list[dict[str, Any]] = [
        {
            "id": new_id(),
            "run_id": run.id,
            "node_id": node.id,
            "node_name": node.name,
            "device": run.device,
            "slots": indices,
            "node_rank": node_rank,
            "placed": now(),
            "downloads": [],
            "renewal": 0,
        }
        for node_rank, (node, indices) in enumerate(slots.items())
    ]
    occupied = [
        {"node_id": row["node_id"], "device": run.device, "slot_index": index, "placement_id": row["id"]}
        for row in placements
        for index in row["slots"]
    ]
    # Without objects of the session: a run may have many nodes, and a round places many runs.
    connection = session.connection()
    connection.execute(insert(Placement), placements)
    connection.execute(insert(PlacementSlot), occupied)


def _send_hints(session: Write, run: Run, nodes: Sequence[Node]) -> None:
    enqueuer, run_id = enqueuer_of(session), public_id("run", run.id)
    for node in nodes:
        session.after_commit(partial(enqueuer.send_hint, node.name, run_id))


def _names(nodes: Sequence[Node]) -> str:
    return ", ".join(node.name for node in nodes)
