"""A node's slots and what fits on it, in one round of placement."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from trainwright.contracts.agent_protocol import Inventory
from trainwright.contracts.parallelism_spec import EngineKind
from trainwright_backend.nodes.requirements import Needs
from trainwright_backend.nodes.service import slot_bytes, slots_of
from trainwright_backend.nodes.tables import Node
from trainwright_backend.runs.joined_nodes import bytes_per_rank, has_precision, in_one_network


@dataclass
class NodeCapacity:
    """A node and its free slots. Whether it could run a run is computed once for all runs with the same needs."""

    node: Node
    free: dict[str, list[int]]
    reserved_devices: set[str] = field(default_factory=set)
    """Devices for which an earlier run waits for this node."""

    _could_run: dict[Needs, bool] = field(default_factory=dict, repr=False)

    @cached_property
    def inventory(self) -> Inventory:
        return Inventory.model_validate(self.node.inventory)

    @cached_property
    def slots(self) -> dict[str, int]:
        """Slots by device."""
        return {device: len(indices) for device, indices in slots_of(self.node).items()}

    @cached_property
    def _slot_bytes(self) -> dict[str, int]:
        return slot_bytes(self.inventory)

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

    def can_run_now(self, needs: Needs) -> bool:
        if needs.device in self.reserved_devices or len(self.free[needs.device]) < needs.slots:
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
    return in_one_network(able, needs.nodes, lambda capacity: capacity.inventory.peer_address)
