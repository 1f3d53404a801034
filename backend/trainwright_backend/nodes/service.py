"""Nodes: joining, heartbeats, the list, draining. Runs are placed on them by `placement` and `claims`."""

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from sqlalchemy import delete, select, update

from trainwright.contracts.agent_protocol import Heartbeat, HeartbeatReply, Inventory, Join, PlacedRun, Timers
from trainwright.contracts.api.actions import NodeEdit
from trainwright.contracts.api.nodes import JoinToken as CreatedJoinToken
from trainwright.contracts.api.nodes import Node as ShownNode
from trainwright.contracts.api.nodes import NodeRun, SelfTestResult
from trainwright.contracts.hardware import HardwareUse
from trainwright_backend.auth.tables import Team
from trainwright_backend.core.db import Read, Write, now
from trainwright_backend.core.errors import Conflict, Forbidden
from trainwright_backend.core.ids import new_id, parse_id, public_id, unknown
from trainwright_backend.core.public_address import local_warning, reachable_address
from trainwright_backend.core.security import keyed_hash, new_token
from trainwright_backend.core.settings import Settings
from trainwright_backend.nodes.inventory import (
    Slots,
    free_slots,
    inventory_of,
    is_online,
    reported_slots,
    slot_bytes,
    slots_of,
    taken_slots,
)
from trainwright_backend.nodes.link_tests import assigned_link_tests, take_link_reports
from trainwright_backend.nodes.load_history import record_load
from trainwright_backend.nodes.policies import TOKEN_PURPOSE
from trainwright_backend.nodes.quarantine import (
    quarantine,
    recent_failures,
    release,
    shown_quarantine,
    take_self_test,
    wanted_self_test,
)
from trainwright_backend.nodes.tables import JoinToken, Node
from trainwright_backend.runs.joined_nodes import NODE_SOURCES, JoinedNode
from trainwright_backend.runs.notify import notify_control
from trainwright_backend.runs.tables import NodeSize, Placement, Run

JOIN_SECONDS = 15 * 60.0
JOIN_PURPOSE = "join"


def create_join_token(
    session: Write, settings: Settings, name: str, requested: str | None = None, *, any_slots: bool = False
) -> CreatedJoinToken:
    """A token with which a machine may join as ``name``, once, within 15 minutes.

    Args:
        requested: the address by which the request reached the server.
        any_slots: whether it may have more slots later than it reports then, as on the operator's own machine.
    """
    token = new_token()
    expires = now() + timedelta(seconds=JOIN_SECONDS)
    session.execute(delete(JoinToken).where(JoinToken.expires < now()))
    hashed = keyed_hash(settings.secret_key, JOIN_PURPOSE, token)
    session.add(JoinToken(token_hash=hashed, name=name, any_slots=any_slots, expires=expires))
    address = reachable_address(settings, requested)
    warnings = filter(None, (local_warning(address), online_name_warning(session, name, settings.timers)))
    return CreatedJoinToken(
        token=token, name=name, expires=expires, api=address, warning=" ".join(warnings) or None
    )


def online_name_warning(session: Read, name: str, timers: Timers) -> str | None:
    """A warning about the online node that already has the name; None if there is none."""
    node = session.scalars(select(Node).where(Node.name == name)).one_or_none()
    if node is None or not is_online(node, now(), timers):
        return None
    return (
        f"A node named {name} is online. A machine that joins with this token takes its place: the agent there is locked "
        "out, and its runs stop and resume from their last checkpoints. To keep that node, choose another name."
    )


def join(session: Write, settings: Settings, request: Join) -> tuple[Node, str]:
    """Admit a machine with the slots that it reports. One that joins again under its name gets a new token, and its old
    token is revoked.

    Returns:
        The node and its token; only a keyed hash of the token is stored.

    Raises:
        Forbidden: the join token is unknown, used, expired, or was created for another name.
    """
    good = (
        JoinToken.token_hash == keyed_hash(settings.secret_key, JOIN_PURPOSE, request.token),
        JoinToken.name == request.name,
        JoinToken.expires > now(),
    )
    any_slots = session.scalar(select(JoinToken.any_slots).where(*good))
    if any_slots is None or not session.change(delete(JoinToken).where(*good)):
        detail = f"This join token does not let {request.name} join: it is unknown, used, or older than 15 minutes."
        raise Forbidden("bad_join_token", f"{detail} Create a new one.")
    token = new_token()
    node = session.scalars(select(Node).where(Node.name == request.name)).one_or_none()
    if node is None:
        node = Node(id=new_id(), name=request.name, joined=now(), busy_slots={}, last_heartbeat=None)
        session.add(node)
    node.token_hash = keyed_hash(settings.secret_key, TOKEN_PURPOSE, token)
    node.allowed_slots = None if any_slots else _slots_at_join(request.inventory)
    _take_inventory(session, node, request.inventory)
    session.flush()
    return node, token


def heartbeat(session: Write, node_id: UUID, request: Heartbeat, settings: Settings) -> HeartbeatReply:
    """Record a heartbeat; the response says what is placed on the node, and what it has to test."""
    timers = settings.timers
    node = session.get_one(Node, node_id, with_for_update=True)
    if (
        request.inventory is not None
        or request.busy_slots != node.busy_slots
        or not is_online(node, now(), timers)
    ):
        notify_control(session)  # it may have free slots now
    node.last_heartbeat = now()
    node.busy_slots = request.busy_slots
    node.hardware = None if request.hardware is None else request.hardware.model_dump(mode="json")
    if request.hardware is not None:
        record_load(session, node, request.hardware)
    if request.inventory is not None:
        _take_inventory(session, node, request.inventory)
    take_link_reports(session, node.id, request.link_tests)
    take_self_test(session, node, request.self_test, timers)
    session.flush()
    placed = [
        PlacedRun(
            run_id=public_id("run", placement.run_id),
            device=placement.device,
            slots=placement.slots,
            claimed=placement.claim_id is not None,
            fence=placement.fence,
        )
        for placement in open_placements(session, node_id)
    ]
    return HeartbeatReply(
        placements=placed,
        timers=timers,
        hints_url=settings.resolved_agents_hints_url,
        self_test=wanted_self_test(node),
        link_tests=assigned_link_tests(session, node.id, timers),
    )


def open_placements(session: Read, node_id: UUID) -> list[Placement]:
    """The node's placements that have not ended, oldest first."""
    rows = select(Placement).where(Placement.node_id == node_id, Placement.closed.is_(None))
    return list(session.scalars(rows.order_by(Placement.id)))


def list_nodes(session: Read, timers: Timers) -> list[ShownNode]:
    """All nodes by name."""
    return _show(session, session.scalars(select(Node).order_by(Node.name)).all(), timers)


def edit_node(session: Write, node_id: str, change: NodeEdit, timers: Timers) -> ShownNode:
    """Drain or quarantine a node or let it take runs again, or change how many slots it may have.

    Claimed runs continue, even on slots that are no longer allowed, unless they are to be moved off a draining node: the control
    loop does that (`moving.move_off_drained`). Unclaimed runs are placed elsewhere.

    Raises:
        NotFound: there is no such node.
    """
    node = _locked_node(session, node_id)
    if change.draining is not None:
        node.draining = change.draining
    if change.move_runs is not None:
        node.move_runs = change.move_runs
        node.draining = node.draining or change.move_runs
    node.move_runs = node.move_runs and node.draining
    if change.quarantined is not None:
        if change.quarantined:
            quarantine(session, node, "A site admin put it there.")
        else:
            release(session, node)
    if change.allowed_slots is not None:
        node.allowed_slots = (node.allowed_slots or {}) | change.allowed_slots.model_dump(exclude_none=True)
        _record_sizes(session, node)
    session.flush()
    notify_control(session)  # it withdraws unclaimed placements, or places waiting runs
    return _show(session, [node], timers)[0]


def remove_node(session: Write, node_id: str) -> None:
    """Remove a node and revoke its token.

    Raises:
        Conflict: a run is placed on it.
    """
    node = _locked_node(session, node_id)
    if open_placements(session, node.id):
        detail = f"Runs are placed on {node.name}. Cancel them or wait until they end, then remove it."
        raise Conflict("node_in_use", detail)
    session.execute(update(NodeSize).where(NodeSize.node_name == node.name).values(joined=False))
    session.deleted_names = (node.name,)
    session.execute(delete(Node).where(Node.id == node.id))


def _slots_at_join(inventory: Inventory) -> dict[str, int]:
    """What a node may have until a site admin allows more: at most as many CPU slots as cores."""
    return {"cuda": len(inventory.gpus), "cpu": min(inventory.cpu_slots, inventory.cores)}


def machines(session: Read) -> list[JoinedNode]:
    """The nodes against which submissions and layouts are checked."""
    return [_machine(node) for node in session.scalars(select(Node).order_by(Node.name))]


def _machine(node: Node) -> JoinedNode:
    inventory = inventory_of(node)
    slots = _numbers_of(slots_of(node))
    return JoinedNode(
        node.name,
        slots,
        inventory.memory_bytes,
        inventory.deepspeed,
        inventory.cpu_peak,
        inventory.gpus,
        inventory.peer_address,
    )


NODE_SOURCES.append(machines)


def _take_inventory(session: Write, node: Node, inventory: Inventory) -> None:
    node.inventory = inventory.model_dump(mode="json")
    _record_sizes(session, node)


def _record_sizes(session: Write, node: Node) -> None:
    memory = slot_bytes(inventory_of(node))
    for device, indices in slots_of(node).items():
        session.merge(
            NodeSize(
                node_name=node.name,
                device=device,
                slots=len(indices),
                joined=True,
                slot_bytes=memory.get(device) if indices else None,
            )
        )


def _locked_node(session: Write, node_id: str) -> Node:
    node = session.get(Node, parse_id("node", node_id), with_for_update=True, populate_existing=True)
    if node is None:
        raise unknown("node", node_id)
    return node


def _show(session: Read, nodes: Sequence[Node], timers: Timers) -> list[ShownNode]:
    node_ids = [node.id for node in nodes]
    taken, occupants = taken_slots(session, node_ids), _occupants(session, node_ids)
    return [
        _shown(node, taken.get(node.id, {}), occupants.get(node.id, []), timers).model_copy(
            update={"failures": recent_failures(session, node)}
        )
        for node in nodes
    ]


def _occupants(session: Read, node_ids: Sequence[UUID]) -> dict[UUID, list[NodeRun]]:
    """Runs of all teams that are placed on each node, oldest first."""
    rows = (
        select(Node.id, Placement, Run, Team.slug)
        .join(Placement, Placement.node_id == Node.id)
        .join(Run, Run.id == Placement.run_id)
        .join(Team, Team.id == Run.team_id)
        .where(Node.id.in_(node_ids), Placement.closed.is_(None))
        .order_by(Placement.id)
    )
    found: dict[UUID, list[NodeRun]] = {}
    for node_id, placement, run, slug in session.execute(rows).all():
        occupant = NodeRun(
            team=slug,
            run=public_id("run", run.id),
            name=run.name,
            device=placement.device,
            slots=placement.slots,
            state=run.state,
        )
        found.setdefault(node_id, []).append(occupant)
    return found


def _numbers_of(slots: dict[str, list[int]]) -> dict[str, int]:
    return {device: len(indices) for device, indices in slots.items()}


def _shown(node: Node, taken: Slots, runs: list[NodeRun], timers: Timers) -> ShownNode:
    inventory = inventory_of(node)
    online = is_online(node, now(), timers)
    known = online and node.hardware is not None
    return ShownNode(
        id=public_id("node", node.id),
        name=node.name,
        online=online,
        last_heartbeat=node.last_heartbeat,
        inventory=inventory,
        slots=_numbers_of(slots_of(node)),
        reported_slots=_numbers_of(reported_slots(inventory)),
        slots_free=_numbers_of(free_slots(node, taken)),
        draining=node.draining,
        move_runs=node.move_runs,
        quarantine=shown_quarantine(node),
        self_test=None if node.self_test is None else SelfTestResult.model_validate(node.self_test),
        runs=runs,
        hardware=HardwareUse.model_validate(node.hardware) if known else None,
    )
