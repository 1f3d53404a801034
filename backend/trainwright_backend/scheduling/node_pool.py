"""The nodes of one round of placement, and which of them each waiting run may get.

A round considers many runs and many nodes, but few kinds of both. So the nodes that could run a run are found once for all runs
with the same needs, kind by kind. Once a waiting run has reserved nodes, they get no more runs, so the rest of the round skips
them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf

from trainwright.contracts.parallelism_spec import Device
from trainwright_backend.runs.tables import Run
from trainwright_backend.scheduling.moving import not_avoided
from trainwright_backend.scheduling.node_capacity import NodeCapacity, NodeKind, could_run, within_reach
from trainwright_backend.scheduling.requirements import Needs


@dataclass(eq=False)
class Match:
    """The nodes for runs with the same needs."""

    needs: Needs
    allowed: Sequence[NodeCapacity]
    """Those that the runs may be placed on, with so much memory for their offload as there is."""
    capable: Sequence[NodeCapacity]
    """Those of them that could run such a run, or its part of it, if nothing else ran there. By name."""
    max_free_seconds: float = inf
    """No nodes are free for such a run that takes longer. In a round, free slots only become fewer."""
    is_reserving: bool = False
    """A run on one node reserves all nodes that could ever run it."""
    sentence: str | None = None
    """What such runs wait for, since the last placement in this round."""
    _unreserved: Sequence[NodeCapacity] | None = None
    _with_free_slots: Sequence[NodeCapacity] | None = None

    def unreserved(self) -> Sequence[NodeCapacity]:
        """The capable nodes that are not reserved from now on: only these may still get such a run. By name."""
        known = self.capable if self._unreserved is None else self._unreserved
        self._unreserved = [capacity for capacity in known if capacity.reserved_from(self.needs.device) > 0]
        return self._unreserved

    def with_free_slots(self) -> Sequence[NodeCapacity]:
        """The capable nodes with enough free slots, reserved or not. By name. While many runs wait, nearly all nodes are full."""
        known = self.capable if self._with_free_slots is None else self._with_free_slots
        self._with_free_slots = [
            capacity for capacity in known if len(capacity.free[self.needs.device]) >= self.needs.slots
        ]
        return self._with_free_slots

    @cached_property
    def together(self) -> Sequence[NodeCapacity]:
        """The capable nodes that could run such a run together. By name."""
        return within_reach(self.capable, self.needs)

    def without_avoided(self, run: Run) -> "Match":
        """The nodes for one run, which may avoid some."""
        if not run.avoided_nodes:
            return self
        allowed, capable = not_avoided(run, self.allowed), not_avoided(run, self.capable)
        return Match(self.needs, allowed, capable, is_reserving=self.is_reserving)


@dataclass
class NodePool:
    """The nodes of one round."""

    available: Sequence[NodeCapacity]
    unavailable: Sequence[NodeCapacity]
    """Drained, in quarantine or offline."""
    _matches: dict[Needs, Match] = field(default_factory=dict)

    def match(self, needs: Needs) -> Match:
        """The nodes for all runs with these needs that avoid none."""
        if needs not in self._matches:
            self._matches[needs] = self._find(needs)
        return self._matches[needs]

    def match_run(self, run: Run, needs: Needs) -> Match:
        """The nodes for a run with these needs."""
        return self.match(needs).without_avoided(run)

    def slots_were_taken(self) -> None:
        """Forget what runs wait for."""
        for match in self._matches.values():
            match.sentence = None

    @cached_property
    def _by_name(self) -> Sequence[NodeCapacity]:
        return sorted(self.available, key=lambda capacity: capacity.name)

    @cached_property
    def _kinds(self) -> Sequence[NodeKind]:
        return list({capacity.hardware.kind for capacity in self.available})

    def _find(self, needs: Needs) -> Match:
        fits = {kind: could_run(kind, needs) for kind in self._kinds}
        capable: Sequence[NodeCapacity] = [
            capacity for capacity in self._by_name if fits[capacity.hardware.kind]
        ]
        if needs.device == Device.CPU:  # the memory of GPUs is a property of their kind
            capable = [capacity for capacity in capable if capacity.has_memory(needs)]
        if needs.memory.host_bytes:
            capable = self._with_host_memory(capable, needs)
        return Match(needs, self.available, capable)

    def _with_host_memory(self, capable: Sequence[NodeCapacity], needs: Needs) -> Sequence[NodeCapacity]:
        """The capable nodes with enough host memory for the run's checkpoints and offload; all of them if too few have enough, since
        the plan warned of it."""
        enough = [capacity for capacity in capable if capacity.host_bytes >= needs.memory.host_bytes]
        if len(enough) >= needs.nodes:
            return enough
        others = sum(capacity.has_host_memory(needs) for capacity in self.unavailable)
        return enough if len(enough) + others >= needs.nodes else capable
