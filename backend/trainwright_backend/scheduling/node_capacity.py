"""A node's slots and what fits on it, in one round of placement."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import Self
from uuid import UUID

from trainwright.contracts.agent_protocol import Inventory
from trainwright.contracts.parallelism_spec import EngineKind
from trainwright_backend.nodes.service import free_slots, inventory_of, slot_bytes, slots_of
from trainwright_backend.nodes.tables import Node
from trainwright_backend.runs.joined_nodes import bytes_per_rank, has_precision, in_one_network, is_loopback
from trainwright_backend.scheduling.requirements import Needs


@dataclass(frozen=True)
class Reservation:
    """An earlier run waits for a node."""

    run_id: UUID
    start: float
    """Seconds until it is expected to start; 0 if that is unknown."""


@dataclass
class NodeCapacity:
    """A node and its free slots. Whether it could run a run is computed once for all runs with the same needs."""

    node: Node
    free: dict[str, list[int]]
    reservations: dict[str, Reservation] = field(default_factory=dict)
    """The earliest one by device."""

    _could_run: dict[Needs, bool] = field(default_factory=dict, repr=False)

    @classmethod
    def measure(cls, node: Node, taken: Collection[tuple[str, int]]) -> Self:
        """The node with those slots free that are not ``taken``."""
        capacity = cls(node, {})
        capacity.free = free_slots(node, taken, capacity._indices)
        return capacity

    @cached_property
    def inventory(self) -> Inventory:
        return inventory_of(self.node)

    @cached_property
    def slots(self) -> dict[str, int]:
        """Slots by device."""
        return {device: len(indices) for device, indices in self._indices.items()}

    @cached_property
    def _indices(self) -> dict[str, list[int]]:
        return slots_of(self.node, self.inventory)

    @cached_property
    def _slot_bytes(self) -> dict[str, int]:
        return slot_bytes(self.inventory)

    @cached_property
    def is_local(self) -> bool:
        """Whether only nodes on the same machine reach it."""
        return is_loopback(self.inventory.peer_address)

    @property
    def location(self) -> str:
        return self.inventory.location

    def is_large_enough(self, needs: Needs) -> bool:
        return self.slots[needs.device] >= needs.slots

    def could_run(self, needs: Needs) -> bool:
        """Whether the node could run the run, or its part of it, if nothing else ran there."""
        if needs not in self._could_run:
            fits = self.is_large_enough(needs) and self.has_software(needs)
            self._could_run[needs] = fits and self._has_memory(needs)
        return self._could_run[needs]

    def could_offload(self, needs: Needs) -> bool:
        return self.could_run(needs) and self.inventory.memory_bytes >= needs.host_bytes

    def reserve(self, device: str, reservation: Reservation) -> None:
        """Keep the node's slots for a waiting run."""
        if reservation.start < self.reserved_from(device):
            self.reservations[device] = reservation

    def reserved_from(self, device: str) -> float:
        """Seconds until an earlier run is expected to need the node; infinite if none waits for it."""
        found = self.reservations.get(device)
        return inf if found is None else found.start

    def can_run_now(self, needs: Needs, seconds: float = inf) -> bool:
        """Whether the run, or its part, fits now and, on a reserved node, ends before the earlier run needs it."""
        if len(self.free[needs.device]) < needs.slots or self.reserved_from(needs.device) < seconds:
            return False
        return self.could_run(needs)

    def has_software(self, needs: Needs) -> bool:
        """Whether the node's software and kind of GPU can run the run, or its part of it, as far as its agent reported."""
        can_reach_others = needs.nodes == 1 or self.inventory.peer_address is not None
        has_engine = needs.engine != EngineKind.DEEPSPEED or self.inventory.deepspeed is not False
        return can_reach_others and has_engine and self.has_gpus(needs)

    def has_gpus(self, needs: Needs) -> bool:
        """Whether the node's GPUs are those that the run asks for and support its precision, as far as its agent reported."""
        if needs.gpus and not needs.gpus.suits(self.inventory.gpus):
            return False
        return needs.precision is None or has_precision(self.inventory.gpus, needs.precision)

    def memory_for(self, needs: Needs) -> int | None:
        """The most memory that the node could give each rank; None if it has no slot of the device."""
        slots, memory = self.slots[needs.device], self._slot_bytes.get(needs.device)
        return bytes_per_rank(needs.device, slots, memory, needs.slots) if slots and memory else None

    def _has_memory(self, needs: Needs) -> bool:
        available = self.memory_for(needs)
        return available is None or available >= needs.rank_bytes


def within_reach(able: Sequence[NodeCapacity], needs: Needs) -> list[NodeCapacity]:
    """The nodes among ``able`` that can run the run together."""
    if needs.nodes == 1:
        return list(able)
    return in_one_network(able, needs.nodes, lambda capacity: capacity.is_local)
