"""What a node offers: its hardware, its slots and which of them are free, and whether it takes runs."""

import json
from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import datetime
from functools import lru_cache
from uuid import UUID

from sqlalchemy import String, cast, func, select

from trainwright.contracts.agent_protocol import Inventory, Timers
from trainwright_backend.core.db import Read
from trainwright_backend.nodes.tables import Node
from trainwright_backend.runs.tables import PlacementSlot

Slots = Mapping[str, Collection[int]]
"""Indices of slots by device."""
MISSED_HEARTBEATS = 3
"""After this many a node is offline and gets no new runs."""


def is_online(node: Node, at: datetime, timers: Timers) -> bool:
    """Whether the node's heartbeats arrive."""
    return heartbeats_arrive(node.last_heartbeat, at, timers)


def heartbeats_arrive(last: datetime | None, at: datetime, timers: Timers) -> bool:
    """Whether a node that sent its ``last`` heartbeat then is still online."""
    return last is not None and (at - last).total_seconds() <= MISSED_HEARTBEATS * timers.heartbeat_seconds


def takes_runs(node: Node) -> bool:
    """Whether runs may be placed on the node: it is neither drained nor in quarantine."""
    return not node.draining and node.quarantined is None


def inventory_of(node: Node) -> Inventory:
    """The node's hardware and software."""
    return read_inventory(json.dumps(node.inventory))


@lru_cache(maxsize=2048)
def read_inventory(reported: str) -> Inventory:
    """An inventory in JSON. Cached, because the same ones are read again and again."""
    return Inventory.model_validate_json(reported)


def slots_of(node: Node) -> dict[str, list[int]]:
    """Indices of the node's slots by device: those that it reports, as far as a site admin allows."""
    return allowed_slots(inventory_of(node), node.allowed_slots)


def allowed_slots(inventory: Inventory, allowed: Mapping[str, int] | None) -> dict[str, list[int]]:
    """Indices of a node's slots by device: at most as many as ``allowed``.

    A node that reports more than before, because its token was stolen, would otherwise draw other teams' runs.
    """
    limits = allowed or {}
    return {device: indices[: limits.get(device)] for device, indices in reported_slots(inventory).items()}


def reported_slots(inventory: Inventory) -> dict[str, list[int]]:
    """Indices of the slots that a node offers, by device."""
    return {
        "cuda": sorted(gpu.index for gpu in inventory.gpus),
        "cpu": list(range(inventory.cpu_slots)),
    }


def slot_bytes(inventory: Inventory) -> dict[str, int]:
    """Memory of the smallest slot, by device."""
    found = {"cpu": inventory.memory_bytes // max(1, inventory.cpu_slots)}
    if inventory.gpus:
        found["cuda"] = min(gpu.memory_bytes for gpu in inventory.gpus)
    return found


def threads_per_slot(node: Node, device: str) -> int:
    """CPU threads for the rank of one slot: the node's cores, shared by the slots that it may use."""
    cores = inventory_of(node).cores
    return max(1, cores // max(1, len(slots_of(node)[device])))


def free_slots(node: Node, taken: Slots) -> dict[str, list[int]]:
    """Indices of the node's slots that are neither in a placement (``taken``) nor used by a marked process, by device."""
    return unused_slots(slots_of(node), taken, node.busy_slots)


def unused_slots(
    slots: Mapping[str, list[int]], taken: Slots, busy: Mapping[str, list[int]]
) -> dict[str, list[int]]:
    """The ``slots`` that are neither ``taken`` by a placement nor ``busy`` with a marked process, by device."""
    found = {}
    for device, indices in slots.items():
        used = {*taken.get(device, ()), *busy.get(device, ())}
        found[device] = [index for index in indices if index not in used] if used else list(indices)
    return found


def taken_slots(session: Read, node_ids: Collection[UUID] | None = None) -> dict[UUID, Slots]:
    """The slots of placements by node: of some nodes, or of all."""
    indices = func.aggregate_strings(cast(PlacementSlot.slot_index, String), ",")
    slots = select(PlacementSlot.node_id, PlacementSlot.device, indices)
    if node_ids is not None:
        slots = slots.where(PlacementSlot.node_id.in_(node_ids))
    taken: dict[UUID, dict[str, set[int]]] = defaultdict(dict)
    for node_id, device, listed in session.execute(
        slots.group_by(PlacementSlot.node_id, PlacementSlot.device)
    ):
        taken[node_id][device] = set(map(int, listed.split(",")))
    return {**taken}
