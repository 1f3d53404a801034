"""Slots that become free: which runs leave their nodes, when, and which borrowing runs are asked to leave.

A run borrows its slots if its team's other runs use the team's share. It gives them back to a run that another team's share
covers, unless its attempt started less than the minimum run time ago: first runs of a low priority, among them the youngest
attempts. Only as many runs leave as are needed, and runs that are already leaving count first. A team is never brought below its share, so a
run that only partly exceeds it stays.

A run that was placed ahead of its turn (`placement_round`) and took longer than expected gives its slots to the run that it was
placed ahead of, also if that one waits for the limit of their team.

Everything is decided on one snapshot, and nothing is changed: `preemption` executes it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from math import inf
from uuid import UUID

from trainwright_backend.runs.tables import Run
from trainwright_backend.scheduling.node_capacity import NodeCapacity, within_reach
from trainwright_backend.scheduling.node_pool import Match
from trainwright_backend.scheduling.occupants import RunOnNodes
from trainwright_backend.scheduling.requirements import Needs
from trainwright_backend.teams.slot_quota import SlotBudget


@dataclass
class Departures:
    """The runs on slots of one device, in one round of placement."""

    runs: Sequence[RunOnNodes]
    budgets: Mapping[UUID, SlotBudget]
    at: datetime
    min_run_minutes: float
    _asked: set[UUID] = field(default_factory=set)
    """The runs that this round asks to leave."""

    def make_room(self, run_id: UUID, match: Match, *, covered: bool) -> list[UUID] | None:
        """Set slots aside for a waiting run that will start once other runs have left.

        Args:
            run_id: the waiting run.
            match: the nodes that it may be placed on.
            covered: whether its team's share covers the run.

        Returns:
            The runs to pre-empt, which may be none; None if there is not enough room.
        """
        late, borrowing = self._late.get(run_id, []), self._old_enough if covered else []
        if not late and not borrowing and not self._coming:
            return None
        capable = [item for item in match.unreserved() if match.needs.device not in item.reservations]
        room = _Room(match.needs, capable, self._coming)
        chosen = self._enough(room, late, borrowing)
        if not room.suffices():
            return None
        for run in reversed(chosen.copy()):  # those that turn out not to be needed stay
            room.add(run, -1)
            if room.suffices():
                chosen.remove(run)
            else:
                room.add(run, 1)
        self._ask(chosen)
        room.set_aside(self._coming)
        return [run.run_id for run in chosen]

    def make_room_in_limit(self, run: Run, budget: SlotBudget) -> list[UUID]:
        """The late runs to pre-empt for a run that waits for its team's limit; none if they are not enough."""
        wanted = budget.used - self._leaving[run.team_id] + run.slots - budget.limit
        chosen: list[RunOnNodes] = []
        for one in self._late.get(run.id, []):
            if wanted > 0 and one.team_id == run.team_id and one.run_id not in self._asked:
                chosen.append(one)
                wanted -= one.slots
        if wanted > 0:
            return []
        self._ask(chosen)
        return [one.run_id for one in chosen]

    def expected_room_in_limit(self, run: Run, budget: SlotBudget) -> float:
        """Seconds until a waiting run fits its team's limit, if the team's runs end as expected; 0 if that is unknown."""
        wanted = budget.used - self._leaving[run.team_id] + run.slots - budget.limit
        for one in self._by_end if wanted > 0 else ():
            if one.team_id == run.team_id and one.run_id not in self._asked:
                wanted -= one.slots
                if wanted <= 0:
                    return one.seconds_left or 0.0
        return 0.0

    def expected_start(self, match: Match) -> float:
        """Seconds until a waiting run could start, if all runs end as expected; 0 if that is unknown, or if no slot is free
        until then."""
        needs = match.needs
        if not self._by_end or not any(capacity.free[needs.device] for capacity in match.capable):
            return 0.0
        starts = sorted(self._free_from(capacity, needs) for capacity in match.together)
        start = starts[needs.nodes - 1] if len(starts) >= needs.nodes else inf
        return start if start < inf else 0.0

    @cached_property
    def _coming(self) -> Counter[UUID]:
        """Slots by node that become free soon, and that no waiting run was given yet."""
        coming: Counter[UUID] = Counter()
        for run in self.runs:
            if run.leaving:
                coming.update(run.slots_by_node)
        return coming

    @cached_property
    def _leaving(self) -> Counter[UUID]:
        """Slots by team of the runs that leave their nodes."""
        leaving: Counter[UUID] = Counter()
        for run in self.runs:
            leaving[run.team_id] += run.slots if run.leaving else 0
        return leaving

    @cached_property
    def _old_enough(self) -> list[RunOnNodes]:
        """The runs that may be asked to give back what they borrow, in the order in which they are."""
        since = self.at - timedelta(minutes=self.min_run_minutes)
        old = [run for run in self.runs if run.attempt_started is not None and run.attempt_started <= since]
        return sorted(old, key=_preempted_first)

    @cached_property
    def _late(self) -> dict[UUID, list[RunOnNodes]]:
        """The runs that took longer than expected, by the waiting run that they were placed ahead of."""
        late: dict[UUID, list[RunOnNodes]] = {}
        for run in self.runs:
            if run.backfill_for is None or run.backfill_until is None or run.attempt_started is None:
                continue
            if run.backfill_until <= self.at:
                late.setdefault(run.backfill_for, []).append(run)
        return late

    @cached_property
    def _by_end(self) -> list[RunOnNodes]:
        """The runs whose end is expected and which are not leaving before, the first one first."""
        known = [run for run in self.runs if run.seconds_left is not None and not run.leaving]
        return sorted(known, key=lambda run: run.seconds_left or 0.0)

    @cached_property
    def _ends(self) -> dict[UUID, list[RunOnNodes]]:
        """Those of them on each node."""
        ends: dict[UUID, list[RunOnNodes]] = {}
        for run in self._by_end:
            for node_id in run.slots_by_node:
                ends.setdefault(node_id, []).append(run)
        return ends

    def _ask(self, chosen: Sequence[RunOnNodes]) -> None:
        """Count the slots of runs that are asked to leave."""
        for run in chosen:
            self._asked.add(run.run_id)
            self._leaving[run.team_id] += run.slots
            self._coming.update(run.slots_by_node)

    def _enough(
        self, room: "_Room", late: Sequence[RunOnNodes], borrowing: Sequence[RunOnNodes]
    ) -> list[RunOnNodes]:
        """The first runs that together make enough room, or all that may be asked."""
        chosen: list[RunOnNodes] = []
        leaving, overdue = self._leaving.copy(), {run.run_id for run in late}
        for run in (*late, *(run for run in borrowing if run.run_id not in overdue)):
            if room.suffices():
                break
            if run.run_id in self._asked or not room.is_useful(run):
                continue
            if run.run_id in overdue or self._borrows(run, leaving):
                chosen.append(run)
                leaving[run.team_id] += run.slots
                room.add(run, 1)
        return chosen

    def _borrows(self, run: RunOnNodes, leaving: Counter[UUID]) -> bool:
        """Whether the run's team keeps its share without it and without those that are leaving."""
        budget = self.budgets.get(run.team_id)
        return budget is not None and budget.used - leaving[run.team_id] - run.slots >= budget.guaranteed

    def _free_from(self, capacity: NodeCapacity, needs: Needs) -> float:
        """Seconds until the node has enough free slots and is not reserved; infinite if that is unknown."""
        free = len(capacity.free[needs.device]) + self._coming[capacity.id]
        start = capacity.reserved_from(needs.device)
        earliest = 0.0 if start == inf else start
        if free >= needs.slots:
            return earliest
        for run in self._ends.get(capacity.id, []):
            free += 0 if run.run_id in self._asked else run.slots_by_node[capacity.id]
            if free >= needs.slots:
                return max(run.seconds_left or 0.0, earliest)
        return inf


def _preempted_first(run: RunOnNodes) -> tuple[int, float, UUID]:
    """Sorts by priority, then the youngest attempt first."""
    started = 0.0 if run.attempt_started is None else run.attempt_started.timestamp()
    return run.priority, -started, run.run_id


class _Room:
    """Free slots and those that become free, on the nodes that one waiting run may use."""

    def __init__(self, needs: Needs, capable: Sequence[NodeCapacity], coming: Mapping[UUID, int]) -> None:
        self._needs = needs
        self._nodes = {capacity.id: capacity for capacity in capable}
        self._slots = {
            node_id: len(capacity.free[needs.device]) + coming.get(node_id, 0)
            for node_id, capacity in self._nodes.items()
        }
        self._ready = {node_id for node_id, slots in self._slots.items() if slots >= needs.slots}

    def is_useful(self, run: RunOnNodes) -> bool:
        return not self._nodes.keys().isdisjoint(run.slots_by_node)

    def add(self, run: RunOnNodes, sign: int) -> None:
        """Count the slots of a run that leaves, or no longer count them (-1)."""
        for node_id, slots in run.slots_by_node.items():
            if node_id in self._nodes:
                self._slots[node_id] += sign * slots
                ready = self._slots[node_id] >= self._needs.slots
                (self._ready.add if ready else self._ready.discard)(node_id)

    def suffices(self) -> bool:
        return len(self._ready) >= self._needs.nodes and len(self._reached()) >= self._needs.nodes

    def set_aside(self, coming: Counter[UUID]) -> None:
        """Take the slots for the run: those that become free, then free ones, on the fullest nodes."""
        fullest = sorted(self._reached(), key=self._fullness)
        for capacity in fullest[: self._needs.nodes]:
            taken = min(coming[capacity.id], self._needs.slots)
            coming[capacity.id] -= taken
            del capacity.free[self._needs.device][: self._needs.slots - taken]

    def _fullness(self, capacity: NodeCapacity) -> tuple[int, str]:
        return self._slots[capacity.id], capacity.name

    def _reached(self) -> list[NodeCapacity]:
        return within_reach([self._nodes[node_id] for node_id in self._ready], self._needs)
