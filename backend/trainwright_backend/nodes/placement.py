"""Placing queued runs on nodes.

Runs are placed in order of submission, with all their nodes and slots or not at all. A drained node gets no runs. A
node without a run's engine, or without the memory for its fullest rank, does not get that run, nor does one with too
little host memory for its offload while another has enough. A run that does not fit now reserves nodes, so that later small runs cannot starve a large one;
nodes that are too small for it stay available. A run on one node reserves all that could ever run it; a run on several,
as many as it needs, those with most free slots.

A run on one node gets the fullest one with enough free slots, to keep large gaps. A run on several gets nodes of as
few locations as possible, in the order of their locations, so that neighbouring ranks are near each other.

A round plans and then executes. The plan is made for all runs in one snapshot and changes nothing. Then each
run is placed in its own transaction, under the locks of the run and its nodes, if it still fits. So an error
with one run does not stop the others, and no two runs are ever locked at once.
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
from trainwright.planner.plan import format_memory
from trainwright_backend.core.db import Read, Write, now
from trainwright_backend.core.ids import new_id, public_id
from trainwright_backend.core.message_queue import enqueuer_of
from trainwright_backend.datasets.preparations import get_preparation, why_too_short
from trainwright_backend.datasets.tables import Preparation
from trainwright_backend.nodes.requirements import (
    engine_of,
    has_gpus_for,
    has_software,
    host_bytes_of,
    meets_requirements,
    memory_for,
    memory_of,
    precision_of,
    slots_per_node,
)
from trainwright_backend.nodes.service import free_slots, is_online, slots_of, taken_slots
from trainwright_backend.nodes.tables import Node
from trainwright_backend.runs.notify import notify_run
from trainwright_backend.runs.state_text import end_text, ordinal
from trainwright_backend.runs.submission import NO_NODE
from trainwright_backend.runs.tables import Placement, PlacementSlot, Run
from trainwright_backend.runs.transitions import lock_run, move

MAX_CONSIDERED = 200
"""Runs at the head of a device's queue that one round considers."""
HINT_SECONDS = 15.0
"""Time before a hint is repeated (at the standard lease)."""


@dataclass
class NodeCapacity:
    """One node and its free slots, in one round."""

    node: Node
    free: dict[str, list[int]]
    reserved_devices: set[str] = field(default_factory=set)
    """Devices for which an earlier run waits for this node."""

    @property
    def memory_bytes(self) -> int:
        found: int = self.node.inventory["memory_bytes"]
        return found

    @property
    def is_local(self) -> bool:
        """Other machines cannot reach it."""
        return str(self.node.inventory.get("peer_address")).startswith(("127.", "localhost"))

    @property
    def location(self) -> str:
        return str(self.node.inventory.get("location", ""))

    def is_large_enough(self, run: Run) -> bool:
        return len(slots_of(self.node)[run.device]) >= slots_per_node(run)

    def could_run(self, run: Run) -> bool:
        return self.is_large_enough(run) and meets_requirements(self.node, run)

    def can_run_now(self, run: Run) -> bool:
        kept = run.device in self.reserved_devices
        has_free = len(self.free[run.device]) >= slots_per_node(run)
        return not kept and has_free and meets_requirements(self.node, run)


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
    available = [capacity for capacity in online if not capacity.node.draining]
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
    taken = taken_slots(session)
    free = [free_slots(node, run.device, taken.get(node.id, set()))[: slots_per_node(run)] for node in nodes]
    for node, slots in zip(nodes, free, strict=True):
        if len(slots) < slots_per_node(run) or node.draining or not meets_requirements(node, run):
            return False
        if not is_online(node, now(), timers):
            return False
    for node_rank, (node, slots) in enumerate(zip(nodes, free, strict=True)):
        _add_placement(session, run, node, node_rank, slots)
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
    """The placements that no agent claimed in time, or whose node is drained."""
    drained = Placement.node_id.in_(select(Node.id).where(Node.draining))
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
    """Plan the runs of one device. ``unavailable`` nodes are drained or offline."""
    position = 0
    for run in queue:
        suited = _suited(available, unavailable, run)
        chosen = _fitting(suited, run)
        if chosen:
            found.placements[run.id] = tuple(capacity.node.id for capacity in chosen)
            for capacity in chosen:
                del capacity.free[run.device][: slots_per_node(run)]
            continue
        position += 1
        found.explain(run, _waits_for(run, suited, unavailable, position))
        for capacity in _to_reserve(suited, run):
            capacity.reserved_devices.add(run.device)


def _suited(available: list[NodeCapacity], unavailable: list[NodeCapacity], run: Run) -> list[NodeCapacity]:
    """The nodes with enough host memory for the run's offload; all nodes if none has enough, since the plan
    warned of it."""
    if not host_bytes_of(run):
        return available
    able = [capacity for capacity in available if _could_offload(capacity, run)]
    others = [capacity for capacity in unavailable if _could_offload(capacity, run)]
    return able if len(able) >= run.nodes or len(able) + len(others) >= run.nodes else available


def _could_offload(capacity: NodeCapacity, run: Run) -> bool:
    return capacity.could_run(run) and capacity.memory_bytes >= host_bytes_of(run)


def _fitting(available: list[NodeCapacity], run: Run) -> list[NodeCapacity]:
    """The nodes for the run, in the order of their ranks; none if it does not fit now."""
    able = [capacity for capacity in available if capacity.can_run_now(run)]
    if (
        run.nodes > 1
    ):  # nodes on the server's own machine reach each other by its loopback address, and no others
        able = next((group for group in _by_network(able) if len(group) >= run.nodes), [])
    if len(able) < run.nodes:
        return []
    able.sort(key=lambda capacity: (len(capacity.free[run.device]), capacity.node.name))
    chosen = able[: run.nodes] if run.nodes == 1 else _near_each_other(able, run.nodes)
    return sorted(chosen, key=lambda capacity: (capacity.location, capacity.node.name))


def _by_network(able: list[NodeCapacity]) -> list[list[NodeCapacity]]:
    """The nodes that can reach each other, apart from those that only their own machine reaches."""
    local = [capacity for capacity in able if capacity.is_local]
    return [[capacity for capacity in able if not capacity.is_local], local]


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


def _to_reserve(suited: list[NodeCapacity], run: Run) -> list[NodeCapacity]:
    """The nodes that are kept free for a run that does not fit now."""
    able = [capacity for capacity in suited if capacity.could_run(run)]
    if run.nodes == 1:
        return able
    if len(able) < run.nodes:  # they would wait for nodes that do not exist
        return []
    able = [capacity for capacity in able if run.device not in capacity.reserved_devices]
    able.sort(key=lambda capacity: (-len(capacity.free[run.device]), capacity.node.name))
    return able[: run.nodes]


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


def _waits_for(
    run: Run, available: list[NodeCapacity], unavailable: list[NodeCapacity], position: int
) -> str:
    if not available and not unavailable:
        return NO_NODE
    able = [capacity for capacity in available if capacity.could_run(run)]
    needs = f"needs {_size(run)}"
    if not able and (others := [capacity.node for capacity in unavailable if _could_offload(capacity, run)]):
        if names := [node.name for node in others if node.draining]:
            return f"{needs}; {', '.join(names[:3])} {'is' if len(names) == 1 else 'are'} drained"
        if host_bytes_of(run):
            return f"{needs} and memory for its offload, as {others[0].name} has, which is not online"
    large_enough = [capacity.node for capacity in available if capacity.is_large_enough(run)]
    if not able and any(has_software(node, run) for node in large_enough):
        return _waits_for_memory(run, [node for node in large_enough if has_software(node, run)])
    if not able and any(not has_gpus_for(node, run) for node in large_enough):
        return f"{needs} on {precision_of(run).hardware}, which no node that is online has"
    if not able and (names := [node.name for node in large_enough]):
        return f"{needs} and engine {engine_of(run)}, which is not installed on {', '.join(names[:3])}"
    if not able:
        return f"{needs} on one node; no node that is online has so many {run.device} slots"
    place = "" if position == 1 else f"; {ordinal(position)} in line"
    if run.nodes > 1:
        return f"{needs}; {_state_of_nodes(able, run)}{place}"
    free = sum(len(capacity.free[run.device]) for capacity in able)
    return f"{needs}, {free} free on {_nodes(len(able))}{place}"


def _waits_for_memory(run: Run, nodes: list[Node]) -> str:
    """For a run that needs more memory than each of these online nodes has."""
    most, largest = max((memory_for(node, run) or 0, node.name) for node in nodes)
    return (
        f"needs a node with {format_memory(memory_of(run))} for a rank; the largest that is online, {largest}, has "
        f"{format_memory(most)}"
    )


def _state_of_nodes(able: list[NodeCapacity], run: Run) -> str:
    """How many nodes a run on several nodes could use now."""
    if len(able) < run.nodes:
        return f"{_nodes(len(able))} of that size {'is' if len(able) == 1 else 'are'} online"
    ready = sum(len(capacity.free[run.device]) >= slots_per_node(run) for capacity in able)
    return f"{ready} of {len(able)} such nodes {'is' if ready == 1 else 'are'} free"


def _size(run: Run) -> str:
    slots = _count(slots_per_node(run), "slot")
    return slots if run.nodes == 1 else f"{_nodes(run.nodes)} with {slots} each"


def _nodes(number: int) -> str:
    return _count(number, "node")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _names(nodes: Sequence[Node]) -> str:
    return ", ".join(node.name for node in nodes)
