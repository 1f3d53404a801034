"""A node's slots and what fits on it, in one round of placement."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import inf
from typing import Self
from uuid import UUID
from weakref import WeakValueDictionary

from sqlalchemy import String, cast, select

from trainwright.contracts.agent_protocol import Gpu, Inventory, Timers
from trainwright.contracts.parallelism_spec import Device, EngineKind
from trainwright_backend.core.db import Read, now
from trainwright_backend.nodes.inventory import (
    Slots,
    allowed_slots,
    heartbeats_arrive,
    read_inventory,
    slot_bytes,
    taken_slots,
    unused_slots,
)
from trainwright_backend.nodes.tables import Node
from trainwright_backend.runs.joined_nodes import (
    bytes_per_rank,
    gpu_names,
    has_precision,
    is_loopback,
    nodes_together,
)
from trainwright_backend.scheduling.requirements import Needs


@dataclass(frozen=True)
class Reservation:
    """An earlier run waits for a node."""

    run_id: UUID
    start: float
    """Seconds until it is expected to start; 0 if that is unknown."""


@dataclass(frozen=True, eq=False)
class NodeKind:
    """What nodes have in common that could run the same runs, except their host memory. They share one object (`_kinds`)."""

    slots: Mapping[str, int]
    """Slots by device."""
    gpus: Sequence[Gpu]
    deepspeed: bool | None
    has_address: bool
    """Whether other nodes may reach it."""

    @cached_property
    def gpu_names(self) -> frozenset[str]:
        return gpu_names(self.gpus)

    def is_large_enough(self, needs: Needs) -> bool:
        return self.slots[needs.device] >= needs.slots

    def has_software(self, needs: Needs) -> bool:
        """Whether the software and the kind of GPU can run the run, or a node's part of it, as far as the agent reported."""
        can_reach_others = needs.nodes == 1 or self.has_address
        has_engine = needs.engine != EngineKind.DEEPSPEED or self.deepspeed is not False
        return can_reach_others and has_engine and self.has_gpus(needs)

    def has_gpu_memory(self, needs: Needs) -> bool:
        """Whether each of the GPUs has enough memory for a rank, if it is a run on GPUs."""
        return needs.device != Device.CUDA or all(
            gpu.memory_bytes >= needs.memory.rank_bytes for gpu in self.gpus
        )

    def has_gpus(self, needs: Needs) -> bool:
        """Whether the GPUs are those that the run asks for and support its precision, as far as the agent reported."""
        if needs.gpus and not needs.gpus.suits(self.gpus):
            return False
        return needs.precision is None or has_precision(self.gpus, needs.precision)


@dataclass(frozen=True, eq=False)
class Hardware:
    """A node's inventory, with what a site admin allows of it. Parsed once for as long as it does not change (`_hardware`)."""

    inventory: Inventory
    indices: Mapping[str, list[int]]
    """Indices of its slots, by device."""
    kind: NodeKind

    @cached_property
    def slot_bytes(self) -> dict[str, int]:
        """Memory of the smallest slot, by device."""
        return slot_bytes(self.inventory)

    @cached_property
    def is_local(self) -> bool:
        """Whether only nodes on the same machine reach it."""
        return is_loopback(self.inventory.peer_address)


@dataclass(eq=False)
class NodeCapacity:
    """A node and its free slots."""

    id: UUID
    name: str
    hardware: Hardware
    draining: bool
    in_quarantine: bool
    free: dict[str, list[int]] = field(default_factory=dict)
    """Indices of its free slots, by device."""
    reservations: dict[str, Reservation] = field(default_factory=dict)
    """The earliest one by device."""

    @classmethod
    def of(cls, node: Node, free: Mapping[str, list[int]] | None = None) -> Self:
        """A node with these free slots."""
        hardware = _hardware(json.dumps(node.inventory), json.dumps(node.allowed_slots))
        in_quarantine = node.quarantined is not None
        return cls(node.id, node.name, hardware, node.draining, in_quarantine, dict(free or {}))

    @classmethod
    def measure(cls, node: Node, taken: Slots) -> Self:
        """The node with those slots free that are not ``taken``."""
        capacity = cls.of(node)
        capacity.free = unused_slots(capacity.hardware.indices, taken, node.busy_slots)
        return capacity

    @property
    def kind(self) -> NodeKind:
        return self.hardware.kind

    @property
    def location(self) -> str:
        return self.hardware.inventory.location

    @property
    def host_bytes(self) -> int:
        """Host memory: that of the node, without its GPUs'."""
        return self.hardware.inventory.memory_bytes

    @property
    def takes_runs(self) -> bool:
        """Whether runs may be placed on the node: it is neither drained nor in quarantine."""
        return not self.draining and not self.in_quarantine

    def could_run(self, needs: Needs) -> bool:
        """Whether the node could run the run, or its part of it, if nothing else ran there."""
        return could_run(self.kind, needs) and self.has_memory(needs)

    def has_host_memory(self, needs: Needs) -> bool:
        """Whether it could run the run, and has enough host memory beside that of its slots."""
        return self.host_bytes >= needs.memory.host_bytes and self.could_run(needs)

    def has_memory(self, needs: Needs) -> bool:
        """Whether it has enough memory for each rank, as far as that is known."""
        available = self.memory_for(needs)
        return available is None or available >= needs.memory.rank_bytes

    def memory_for(self, needs: Needs) -> int | None:
        """The most memory that the node could give each rank; None if it has no slot of the device."""
        slots, memory = self.kind.slots[needs.device], self.hardware.slot_bytes.get(needs.device)
        return bytes_per_rank(needs.device, slots, memory, needs.slots) if slots and memory else None

    def reserve(self, device: str, reservation: Reservation) -> None:
        """Keep the node's slots for a waiting run."""
        if reservation.start < self.reserved_from(device):
            self.reservations[device] = reservation

    def reserved_from(self, device: str) -> float:
        """Seconds until an earlier run is expected to need the node; infinite if none waits for it."""
        found = self.reservations.get(device)
        return inf if found is None else found.start

    def can_run_now(self, needs: Needs) -> bool:
        """Whether the run, or its part of it, fits now, and no earlier run waits for the node."""
        is_free = len(self.free[needs.device]) >= needs.slots and needs.device not in self.reservations
        return is_free and self.could_run(needs)


@lru_cache(maxsize=2**16)
def could_run(kind: NodeKind, needs: Needs) -> bool:
    """Whether a node of this kind with enough host memory could run the run, or its part of it, if nothing else ran there."""
    return kind.is_large_enough(needs) and kind.has_software(needs) and kind.has_gpu_memory(needs)


def read_capacities(session: Read, timers: Timers) -> tuple[list[NodeCapacity], list[NodeCapacity]]:
    """The nodes that may get runs, and those that are drained, in quarantine or offline.

    They are read as plain columns: most inventories are those of the round before, so their text is all that is compared.
    """
    rows = session.execute(
        select(
            Node.id,
            Node.name,
            cast(Node.inventory, String),
            cast(Node.allowed_slots, String),
            Node.busy_slots,
            Node.draining,
            Node.quarantined,
            Node.last_heartbeat,
        ).order_by(Node.id)
    )
    taken, at = taken_slots(session), now()
    available: list[NodeCapacity] = []
    unavailable: list[NodeCapacity] = []
    for node_id, name, inventory, allowed, busy, draining, quarantined, last_heartbeat in rows:
        hardware = _hardware(inventory, allowed)
        capacity = NodeCapacity(node_id, name, hardware, draining, quarantined is not None)
        if capacity.takes_runs and heartbeats_arrive(last_heartbeat, at, timers):
            capacity.free = unused_slots(hardware.indices, taken.get(node_id, {}), busy)
            available.append(capacity)
        else:
            unavailable.append(capacity)
    return available, unavailable


def within_reach(capable: Sequence[NodeCapacity], needs: Needs) -> list[NodeCapacity]:
    """The nodes among ``capable`` that can run the run together."""
    if needs.nodes == 1:
        return list(capable)
    kind = (lambda capacity: capacity.kind.gpu_names) if needs.alike else (lambda _: None)
    return nodes_together(capable, needs.nodes, lambda capacity: capacity.hardware.is_local, kind)


@lru_cache(maxsize=2**13)
def _hardware(inventory: str, allowed: str | None) -> Hardware:
    """The hardware of a node from its inventory and its allowed slots, both in JSON."""
    parsed = read_inventory(inventory)
    indices = allowed_slots(parsed, json.loads(allowed) if allowed else None)
    slots = {device: len(found) for device, found in indices.items()}
    kind = NodeKind(slots, parsed.gpus, parsed.deepspeed, parsed.peer_address is not None)
    gpus = tuple((gpu.name, gpu.memory_bytes, gpu.capability) for gpu in kind.gpus)
    key = (*slots.items(), gpus, kind.deepspeed, kind.has_address)
    return Hardware(parsed, indices, _kinds.setdefault(key, kind))


_kinds: WeakValueDictionary[tuple[object, ...], NodeKind] = WeakValueDictionary()
