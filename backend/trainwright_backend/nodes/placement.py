"""Placing queued runs on nodes.

Runs are placed in order of submission, with all their nodes and slots or not at all. A node that is drained or in quarantine
gets no runs. A node does not get a run if it lacks the run's engine or the memory for its fullest rank. A node with too little
host memory for the run's offload does not get it either, as long as other nodes have enough.

A run that does not fit now reserves nodes, so that later small runs cannot starve a large one. Nodes that are too small for
it stay available. A run on one node reserves all nodes that could ever run it. A run on several nodes reserves as many as it
needs, among nodes that can reach each other, those with the most free slots first.

A run on one node gets the fullest node with enough free slots, so that large gaps remain. A run on several nodes gets nodes
from as few locations as possible, ordered by location, so that neighbouring ranks are near each other.

A round first plans and then executes. The plan covers all runs in one snapshot and changes nothing. Then each run is placed
in its own transaction, under the locks of the run and its nodes, if it still fits. Thus an error with one run does not stop
the others, and no two runs are ever locked at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from sqlalchemy import Select, delete, or_, select, update

from trainwright.contracts.agent_protocol import Timers
from trainwright.contracts.api.datasets import PreparationState
from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.parallelism_spec import Device
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.run_state import RunState
from trainwright_backend.core.db import Read, Write, now
from trainwright_backend.core.ids import new_id, public_id
from trainwright_backend.core.message_queue import enqueuer_of
from trainwright_backend.datasets.preparations import get_preparation, why_too_short
from trainwright_backend.datasets.tables import Preparation
from trainwright_backend.nodes.node_capacity import NodeCapacity, within_reach
from trainwright_backend.nodes.requirements import Needs, needs_of
from trainwright_backend.nodes.service import free_slots, is_online, slots_of, taken_slots, takes_runs
from trainwright_backend.nodes.tables import Node
from trainwright_backend.nodes.waiting_reasons import waits_for
from trainwright_backend.runs.notify import notify_run
from trainwright_backend.runs.state_text import end_text
from trainwright_backend.runs.tables import Placement, PlacementSlot, Run
from trainwright_backend.runs.transitions import lock_run, move

MAX_CONSIDERED = 200
"""Runs at the head of a device's queue that one round considers."""
HINT_SECONDS = 15.0
"""Time before a hint is repeated (at the standard lease)."""


@dataclass
class Plan:
    """The result of planning a round."""

    placements: dict[UUID, tuple[UUID, ...]] = field(default_factory=dict)
    """Nodes by run, in the order of their ranks, for the runs that can be placed."""
    reasons: dict[UUID, str] = field(default_factory=dict)
    """What the other runs wait for, if it has changed."""

    def explain(self, run: Run, reason: str) -> None:
        if run.waiting_reason != reason:
            self.reasons[run.id] = reason


def plan(session: Read, timers: Timers) -> Plan:
    """Choose nodes for the runs at the head of the queues, and the waiting reasons of those that do not fit."""
    found = Plan()
    for run, preparation in _still_preparing(session):
        found.explain(run, _preparing(preparation))
    queues = [queue for device in (Device.CUDA, Device.CPU) if (queue := _queue(session, device))]
    if not queues:
        return found
    nodes = session.scalars(select(Node).order_by(Node.id)).all()
    taken = taken_slots(session)
    online = [
        NodeCapacity(
            node, {device: free_slots(node, device, taken.get(node.id, set())) for device in slots_of(node)}
        )
        for node in nodes
        if is_online(node, now(), timers)
    ]
    available = [capacity for capacity in online if takes_runs(capacity.node)]
    unavailable = [
        NodeCapacity(node, {}) for node in nodes if all(capacity.node is not node for capacity in available)
    ]
    for queue in queues:
        _plan_queue(found, queue, available, unavailable)
    return found


def place(session: Write, run_id: UUID, node_ids: Sequence[UUID], timers: Timers) -> bool:
    """Place a queued run on its nodes, if it still fits; a run whose data is shorter than one sequence fails instead.

    Only the leader of the control loops calls this, but the locks and the slots' primary key would protect
    against two.
    """
    run = lock_run(session, run_id)
    if run is None or run.state is not RunState.QUEUED or _is_placed(session, run):
        return False
    ordered = sorted(node_ids)  # two placements that lock the same nodes do not wait for each other
    locked = {
        node_id: session.get(Node, node_id, with_for_update=True, populate_existing=True)
        for node_id in ordered
    }
    nodes = [node for node_id in node_ids if (node := locked[node_id]) is not None]
    if len(nodes) < run.nodes or _fail_too_short(session, run):
        return False
    taken, needs = taken_slots(session), needs_of(run)
    found = [
        NodeCapacity(node, {run.device: free_slots(node, run.device, taken.get(node.id, set()))})
        for node in nodes
    ]
    for capacity in found:
        if not takes_runs(capacity.node) or not is_online(capacity.node, now(), timers):
            return False
        if not capacity.can_run_now(needs):
            return False
    for node_rank, capacity in enumerate(found):
        _add_placement(session, run, capacity.node, node_rank, capacity.free[run.device][: needs.slots])
    explain(session, {run.id: f"placed on {_names(nodes)}"})
    for node in nodes:
        _hint(session, run, node)
    return True


def explain(session: Write, reasons: dict[UUID, str]) -> None:
    """Store what queued runs wait for."""
    for run_id, reason in sorted(reasons.items()):
        queued = update(Run).where(Run.id == run_id, Run.state == RunState.QUEUED)
        if session.change(queued.values(waiting_reason=reason)):
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
    sequence_tokens = RunSpec.model_validate(run.spec).batch.sequence_tokens
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
    session.execute(delete(Placement).where(Placement.run_id == run.id, Placement.claim_id.is_(None)))


def due_hints(session: Write, timers: Timers) -> None:
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
            _hint(session, run, node)


def _queue(session: Read, device: Device) -> Sequence[Run]:
    """The head of a device's queue: unplaced runs with prepared data, oldest first."""
    placed = select(Placement.run_id).where(Placement.claim_id.is_(None))
    waiting = (
        select(Run)
        .join(Preparation, Preparation.id == Run.preparation_id)
        .where(Run.state == RunState.QUEUED, Run.device == device, Run.id.not_in(placed))
        .where(Preparation.state == PreparationState.READY)
    )
    return session.scalars(waiting.order_by(Run.id).limit(MAX_CONSIDERED)).all()


def _still_preparing(session: Read) -> list[tuple[Run, Preparation]]:
    at_work = (PreparationState.WAITING, PreparationState.WORKING)
    rows = (
        select(Run, Preparation)
        .join(Preparation, Preparation.id == Run.preparation_id)
        .where(Run.state == RunState.QUEUED, Preparation.state.in_(at_work))
        .order_by(Run.id)
        .limit(MAX_CONSIDERED)
    )
    return [(run, preparation) for run, preparation in session.execute(rows).all()]


def _plan_queue(
    found: Plan, queue: Sequence[Run], available: list[NodeCapacity], unavailable: list[NodeCapacity]
) -> None:
    """Plan the runs of one device. ``unavailable`` nodes are drained, in quarantine or offline."""
    position = 0
    for run in queue:
        needs = needs_of(run)
        suited = _suited(available, unavailable, needs)
        chosen = _fitting(suited, needs)
        if chosen:
            found.placements[run.id] = tuple(capacity.node.id for capacity in chosen)
            for capacity in chosen:
                del capacity.free[needs.device][: needs.slots]
            continue
        position += 1
        found.explain(run, waits_for(needs, suited, unavailable, position))
        for capacity in _to_reserve(suited, needs):
            capacity.reserved_devices.add(needs.device)


def _suited(
    available: list[NodeCapacity], unavailable: list[NodeCapacity], needs: Needs
) -> list[NodeCapacity]:
    """The nodes with enough host memory for the run's offload; all nodes if none has enough, since the plan
    warned of it."""
    if not needs.host_bytes:
        return available
    able = [capacity for capacity in available if capacity.could_offload(needs)]
    others = [capacity for capacity in unavailable if capacity.could_offload(needs)]
    return able if len(able) >= needs.nodes or len(able) + len(others) >= needs.nodes else available


def _fitting(available: list[NodeCapacity], needs: Needs) -> list[NodeCapacity]:
    """The nodes for the run, in the order of their ranks; none if it does not fit now."""
    able = within_reach([capacity for capacity in available if capacity.can_run_now(needs)], needs)
    if len(able) < needs.nodes:
        return []
    able.sort(key=lambda capacity: (len(capacity.free[needs.device]), capacity.node.name))
    chosen = able[: needs.nodes] if needs.nodes == 1 else _near_each_other(able, needs.nodes)
    return sorted(chosen, key=lambda capacity: (capacity.location, capacity.node.name))


def _near_each_other(able: list[NodeCapacity], count: int) -> list[NodeCapacity]:
    """``count`` of the nodes: of the smallest location that has enough of them, otherwise of as few as possible."""
    by_location: dict[str, list[NodeCapacity]] = {}
    for capacity in able:
        by_location.setdefault(capacity.location, []).append(capacity)
    locations = sorted(by_location.values(), key=len)
    enough = next((nodes for nodes in locations if len(nodes) >= count), None)
    if enough is not None:
        return enough[:count]
    return [capacity for nodes in reversed(locations) for capacity in nodes][:count]


def _to_reserve(suited: list[NodeCapacity], needs: Needs) -> list[NodeCapacity]:
    """The nodes that are kept free for a run that does not fit now."""
    able = within_reach([capacity for capacity in suited if capacity.could_run(needs)], needs)
    if needs.nodes == 1:
        return able
    if len(able) < needs.nodes:  # they would wait for nodes that do not exist
        return []
    able = [capacity for capacity in able if needs.device not in capacity.reserved_devices]
    able.sort(key=lambda capacity: (-len(capacity.free[needs.device]), capacity.node.name))
    return able[: needs.nodes]


def _is_placed(session: Read, run: Run) -> bool:
    waiting = select(Placement.id).where(Placement.run_id == run.id, Placement.claim_id.is_(None))
    return session.scalars(waiting.limit(1)).first() is not None


def _add_placement(session: Write, run: Run, node: Node, node_rank: int, slots: list[int]) -> None:
    placement = Placement(
        id=new_id(),
        run_id=run.id,
        node_id=node.id,
        node_name=node.name,
        device=run.device,
        slots=slots,
        node_rank=node_rank,
        peer=None,
        placed=now(),
        downloads=[],
        renewal=0,
    )
    session.add(placement)
    session.flush()
    session.add_all(
        PlacementSlot(node_id=node.id, device=run.device, slot_index=index, placement_id=placement.id)
        for index in slots
    )


def _hint(session: Write, run: Run, node: Node) -> None:
    session.execute(update(Run).where(Run.id == run.id).values(hinted_at=now()))
    enqueuer, name, run_id = enqueuer_of(session), node.name, public_id("run", run.id)
    session.after_commit(lambda: enqueuer.send_hint(name, run_id))


def _preparing(preparation: Preparation) -> str:
    if preparation.shards_total is None:
        return "preparing its data"
    return f"preparing, {preparation.shards_done} of {preparation.shards_total} shards"


def _names(nodes: Sequence[Node]) -> str:
    return ", ".join(node.name for node in nodes)
