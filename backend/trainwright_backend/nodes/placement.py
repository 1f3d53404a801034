"""Choosing nodes for queued runs: who is next, and where it fits.

First come, first served, all slots of a run or none. A run that does not fit now keeps the nodes that could ever hold
it from those behind it, so that small runs cannot starve a large one; nodes that are too small for it stay open. Of
the nodes with room the fullest is taken, which keeps large gaps whole. Everything happens under the node rows' lock,
one short transaction for one round.
"""

from dataclasses import dataclass, field
from datetime import timedelta

from sqlalchemy import delete, select, update

from trainwright.contracts.agent_protocol import Timers
from trainwright.contracts.api import PreparationState
from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.run_state import RunState
from trainwright_backend.core.db import Write, now
from trainwright_backend.core.enqueue import enqueuer_of
from trainwright_backend.core.ids import new_id, public_id
from trainwright_backend.datasets.tables import Preparation
from trainwright_backend.nodes.service import free_slots, is_online, slots_of, taken_slots
from trainwright_backend.nodes.tables import Node
from trainwright_backend.runs.moves import lock_run, move
from trainwright_backend.runs.sentences import end_sentence, ordinal
from trainwright_backend.runs.submission import NO_NODE
from trainwright_backend.runs.tables import Placement, PlacementSlot, Run
from trainwright_backend.runs.wake import wake_run

CONSIDERED = 200
"""Runs at the head of the queue that one round looks at."""
HINT_SECONDS = 15.0
"""At the standard lease: a hint is not repeated sooner."""


@dataclass
class Room:
    """One node in a round."""

    node: Node
    free: dict[str, list[int]]
    kept_for: set[str] = field(default_factory=set)
    """Devices of which a run that came earlier waits for this node."""

    def could_hold(self, run: Run) -> bool:
        return len(slots_of(self.node)[run.device]) >= run.slots

    def can_hold(self, run: Run) -> bool:
        return run.device not in self.kept_for and len(self.free[run.device]) >= run.slots


def place_queued(session: Write, timers: Timers) -> int:
    """Place the runs that are next and fit, tell the others what they wait for, and return how many were placed.

    Only the leader of the control loops calls this; the slots' primary key holds even if two did.
    """
    fail_unprepared(session)
    nodes = session.scalars(select(Node).order_by(Node.id).with_for_update()).all()
    taken = taken_slots(session)
    rooms = [
        Room(node, {device: free_slots(node, device, taken.get(node.id, set())) for device in slots_of(node)})
        for node in nodes
        if is_online(node, now(), timers)
    ]
    placed = 0
    line: dict[str, int] = {}
    for run, preparation in _queue(session):
        if preparation.state != PreparationState.READY:
            _explain(session, run, _preparing(preparation))
            continue
        room = _fitting(rooms, run)
        if room is not None:
            _place(session, run, room)
            placed += 1
            continue
        line[run.device] = line.get(run.device, 0) + 1
        _explain(session, run, _waits_for(run, rooms, line[run.device], any_joined=bool(nodes)))
        for could in rooms:
            if could.could_hold(run):
                could.kept_for.add(run.device)
    return placed


def fail_unprepared(session: Write) -> None:
    """End the queued runs whose data could not be prepared."""
    hopeless = (
        select(Run.id, Preparation.error)
        .join(Preparation, Preparation.id == Run.preparation_id)
        .where(Run.state == RunState.QUEUED, Preparation.state == PreparationState.FAILED)
    )
    for run_id, error in session.execute(hopeless).all():
        run = lock_run(session, run_id)
        if run is not None and run.state is RunState.QUEUED:
            move(session, run, RunState.FAILED, end_sentence(EndCode.DATA, error or ""), reason=EndCode.DATA)


def expire_unclaimed(session: Write, timers: Timers) -> None:
    """Take back the placements that no agent has claimed in time; their runs are placed anew."""
    late = select(Placement).where(
        Placement.claim_id.is_(None), Placement.placed < now() - timedelta(seconds=timers.claim_seconds)
    )
    for placement in session.scalars(late).all():
        run = lock_run(session, placement.run_id)
        if run is None or run.state is not RunState.QUEUED:
            continue
        session.execute(delete(Placement).where(Placement.id == placement.id, Placement.claim_id.is_(None)))


def due_hints(session: Write, timers: Timers) -> None:
    """Repeat the hints to nodes that live and have not claimed what is placed on them."""
    before = now() - timedelta(seconds=HINT_SECONDS * timers.scale)
    waiting = (
        select(Run, Node)
        .join(Placement, Placement.run_id == Run.id)
        .join(Node, Node.id == Placement.node_id)
        .where(Placement.claim_id.is_(None), Run.hinted < before)
    )
    for run, node in session.execute(waiting).all():
        if is_online(node, now(), timers):
            _hint(session, run, node)


def _queue(session: Write) -> list[tuple[Run, Preparation]]:
    """The head of the queue: runs that are not placed yet, oldest first."""
    placed = select(Placement.run_id).where(Placement.claim_id.is_(None))
    rows = (
        select(Run, Preparation)
        .join(Preparation, Preparation.id == Run.preparation_id)
        .where(Run.state == RunState.QUEUED, Run.id.not_in(placed))
        .order_by(Run.id)
        .limit(CONSIDERED)
        .with_for_update(of=Run, skip_locked=True)
        .execution_options(populate_existing=True)
    )
    return [(run, preparation) for run, preparation in session.execute(rows).all()]


def _fitting(rooms: list[Room], run: Run) -> Room | None:
    able = [room for room in rooms if room.can_hold(run)]
    return min(able, key=lambda room: (len(room.free[run.device]), room.node.name), default=None)


def _place(session: Write, run: Run, room: Room) -> None:
    slots, room.free[run.device] = room.free[run.device][: run.slots], room.free[run.device][run.slots :]
    placement = Placement(
        id=new_id(),
        run_id=run.id,
        node_id=room.node.id,
        node_name=room.node.name,
        device=run.device,
        slots=slots,
        placed=now(),
        downloads=[],
        renewal=0,
    )
    session.add(placement)
    session.flush()
    session.add_all(
        PlacementSlot(node_id=room.node.id, device=run.device, slot_index=index, placement_id=placement.id)
        for index in slots
    )
    _explain(session, run, f"placed on {room.node.name}")
    _hint(session, run, room.node)


def _hint(session: Write, run: Run, node: Node) -> None:
    session.execute(update(Run).where(Run.id == run.id).values(hinted=now()))
    enqueuer, name, run_id = enqueuer_of(session), node.name, public_id("run", run.id)
    session.after_commit(lambda: enqueuer.send_hint(name, run_id))


def _explain(session: Write, run: Run, reason: str) -> None:
    if run.waiting_reason != reason:
        session.execute(update(Run).where(Run.id == run.id).values(waiting_reason=reason))
        wake_run(session, run.id)


def _preparing(preparation: Preparation) -> str:
    if preparation.shards_total is None:
        return "preparing its data"
    return f"preparing, {preparation.shards_done} of {preparation.shards_total} shards"


def _waits_for(run: Run, rooms: list[Room], position: int, *, any_joined: bool) -> str:
    if not any_joined:
        return NO_NODE
    able = [room for room in rooms if room.could_hold(run)]
    needs = f"needs {_slots(run.slots)}"
    if not able:
        return f"{needs} on one node; no node that is online has so many {run.device} slots"
    free = sum(len(room.free[run.device]) for room in able)
    nodes = "1 node" if len(able) == 1 else f"{len(able)} nodes"
    place = "" if position == 1 else f"; {ordinal(position)} in line"
    return f"{needs}, {free} free on {nodes}{place}"


def _slots(count: int) -> str:
    return "1 slot" if count == 1 else f"{count} slots"
