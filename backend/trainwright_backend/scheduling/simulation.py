"""Rounds of placement on a copy of the cluster in which time passes.

Runs leave when they are expected to end, runs that are asked to leave do so after a save, and a round of the scheduler itself
(`placement_round.plan_queue`) follows each event. So whatever decides about placements also decides here: limits, turns of teams, shares,
pre-emption, backfill. What is not known is left out: later submissions, nodes that come and go, the next month's hours.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import timedelta
from time import thread_time
from uuid import UUID

from trainwright_backend.runs.tables import Run
from trainwright_backend.scheduling.departures import Departures
from trainwright_backend.scheduling.device_queue import DeviceQueue
from trainwright_backend.scheduling.fair_share import FairOrder
from trainwright_backend.scheduling.node_capacity import NodeCapacity
from trainwright_backend.scheduling.node_pool import NodePool
from trainwright_backend.scheduling.occupants import RunOnNodes
from trainwright_backend.scheduling.placement_round import Plan, plan_queue
from trainwright_backend.teams.slot_quota import SlotBudget

SAVE_SECONDS = 60.0
"""From the request to leave until the slots are free."""

MAX_ROUNDS = 200
MAX_CPU_SECONDS = 0.5
"""Whoever reads the queue of a large cluster waits no longer. Starts after the time that was reached by then are not known."""
TOGETHER = 1.01
"""Events whose times from now differ by less than this factor are followed by one round."""


@dataclass(frozen=True)
class Length:
    """How long a run will be on its nodes."""

    seconds: float
    is_rough: bool


@dataclass(frozen=True)
class SimulatedStart:
    """When a waiting run starts."""

    seconds: float
    """From now."""
    is_rough: bool
    """Whether a run whose length is rough left before."""


class Simulation:
    """The waiting runs and the nodes of one device.

    Args:
        queue: their present state, which is not changed.
        lengths: of the runs on nodes. A run that is missing never leaves.
        length_of: of a waiting run; None if it is not known.
        find: the row of a run on nodes.
    """

    def __init__(
        self,
        queue: DeviceQueue,
        lengths: Mapping[UUID, Length],
        length_of: Callable[[Run], Length | None],
        find: Callable[[UUID], Run],
    ) -> None:
        self._queue, self._length_of, self._find = queue, length_of, find
        self._gate = deepcopy(queue.gate)
        self._waiting = list(queue.runs.runs)
        self._device = self._waiting[0].device
        self._free = {capacity.id: len(capacity.free[self._device]) for capacity in queue.pool.available}
        self._on_nodes = {run.run_id: run for run in queue.departures.runs}
        self._usage: defaultdict[UUID, float] = defaultdict(float, queue.runs.usage)
        self._ends = dict(lengths)
        self._rests: dict[UUID, Length | None] = {}
        """What is left of the runs that were asked to leave."""
        self._time = 0.0
        self._is_rough = False
        self._starts: dict[UUID, SimulatedStart] = {}

    def starts(self, wanted: Collection[UUID]) -> dict[UUID, SimulatedStart]:
        """When runs start, until the wanted ones have, nothing more is expected to happen, or the CPU time is used up."""
        last = thread_time() + MAX_CPU_SECONDS
        for _ in range(MAX_ROUNDS):
            while self._place():
                pass
            event = self._next_event()
            if event is None or self._starts.keys() >= set(wanted) or thread_time() > last:
                break
            self._pass(event)
        return self._starts

    def _place(self) -> bool:
        """A round. Whether it placed runs, so that another one may place more."""
        at = self._queue.departures.at + timedelta(seconds=self._time)
        budgets = self._budgets()
        on_nodes = [self._now_on_nodes(run) for run in self._on_nodes.values()]
        self._gate.start_round()
        plan = Plan()
        plan_queue(
            plan,
            replace(
                self._queue,
                runs=FairOrder(self._waiting, self._usage, budgets),
                pool=NodePool(self._capacities(), self._queue.pool.unavailable),
                budgets=budgets,
                holders={},
                gate=self._gate,
                departures=Departures(on_nodes, budgets, at, self._queue.departures.min_run_minutes),
                at_limit={},
                waiting={},
                wait_for_nodes=set(),
                latest_start=0.0,
            ),
        )
        for run in [run for run in self._waiting if run.id in plan.placements]:
            self._start(run, plan)
        for run_id in plan.preemptions:
            self._ask_to_leave(run_id)
        return bool(plan.placements)

    def _budgets(self) -> dict[UUID, SlotBudget]:
        held: Counter[UUID] = Counter()
        for run in self._on_nodes.values():
            held[run.team_id] += run.slots
        return {
            team_id: SlotBudget(budget.limit, held[team_id], budget.guaranteed)
            for team_id, budget in self._queue.budgets.items()
        }

    def _now_on_nodes(self, run: RunOnNodes) -> RunOnNodes:
        end = self._ends.get(run.run_id)
        left = None if end is None else max(end.seconds - self._time, 0.0)
        return replace(run, seconds_left=left)

    def _capacities(self) -> list[NodeCapacity]:
        return [
            replace(capacity, free={self._device: list(range(self._free[capacity.id]))}, reservations={})
            for capacity in self._queue.pool.available
        ]

    def _start(self, run: Run, plan: Plan) -> None:
        nodes, slots = plan.placements[run.id], run.slots // run.nodes
        backfill = plan.backfills.get(run.id)
        self._waiting.remove(run)
        self._starts.setdefault(run.id, SimulatedStart(self._time, self._is_rough))
        for node_id in nodes:
            self._free[node_id] -= slots
        length = self._rests.pop(run.id) if run.id in self._rests else self._length_of(run)
        if length is not None:
            self._ends[run.id] = replace(length, seconds=self._time + length.seconds)
        self._on_nodes[run.id] = RunOnNodes(
            team_id=run.team_id,
            slots=slots * len(nodes),
            seconds_left=None,
            run_id=run.id,
            created_by=run.created_by,
            name=run.name,
            priority=run.priority,
            slots_by_node=dict.fromkeys(nodes, slots),
            leaving=False,
            attempt_started=self._queue.departures.at + timedelta(seconds=self._time),
            backfill_until=None if backfill is None else backfill.until,
            backfill_for=None if backfill is None else backfill.ahead_of,
        )

    def _ask_to_leave(self, run_id: UUID) -> None:
        end = self._ends.get(run_id)
        self._rests[run_id] = None if end is None else replace(end, seconds=end.seconds - self._time)
        self._ends[run_id] = Length(self._time + SAVE_SECONDS, is_rough=False)
        self._on_nodes[run_id] = replace(self._on_nodes[run_id], leaving=True, attempt_started=None)

    def _next_event(self) -> float | None:
        """The next time, from now, at which a run leaves or may be asked to."""
        ends = [self._ends[run_id].seconds for run_id in self._on_nodes if run_id in self._ends]
        later = [time for run in self._on_nodes.values() for time in self._askable(run) if time > self._time]
        return min((*ends, *later), default=None)

    def _askable(self, run: RunOnNodes) -> list[float]:
        """When a run may be asked to leave: once it is old enough, and once it is late."""
        if run.attempt_started is None:
            return []
        departures = self._queue.departures
        old_enough = run.attempt_started + timedelta(minutes=departures.min_run_minutes)
        times = [] if run.backfill_until is None else [run.backfill_until]
        if any(budget.guaranteed for budget in self._queue.budgets.values()):
            times.append(old_enough)
        return [(time - departures.at).total_seconds() for time in times]

    def _pass(self, event: float) -> None:
        """Let the time pass until an event, and those that are expected soon after it."""
        for run in self._on_nodes.values():
            self._usage[run.team_id] += run.slots * (event - self._time)
        self._time = event
        for run in list(self._on_nodes.values()):
            end = self._ends.get(run.run_id)
            if end is not None and end.seconds <= event * TOGETHER:
                self._time = max(self._time, end.seconds)
                self._is_rough = self._is_rough or end.is_rough
                self._leave(run)

    def _leave(self, run: RunOnNodes) -> None:
        del self._on_nodes[run.run_id], self._ends[run.run_id]
        for node_id, slots in run.slots_by_node.items():
            if node_id in self._free:
                self._free[node_id] += slots
        self._gate.release(run, self._device)
        if run.run_id in self._rests:
            self._waiting.append(self._find(run.run_id))
            self._waiting.sort(key=lambda run: (-run.priority, run.queue_place or run.id))
