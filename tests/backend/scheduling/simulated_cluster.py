"""A cluster in simulated time that the platform's own planning function schedules. Nothing else of the platform runs."""

import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import UUID

from tests.backend.scripted_agent import inventory
from trainwright.contracts.run_state import RunState
from trainwright_backend.checkpoints.total_storage import MeasuredStorage
from trainwright_backend.nodes.tables import Node
from trainwright_backend.runs.limit_usage import MeasuredLimits
from trainwright_backend.runs.tables import Run
from trainwright_backend.scheduling.departures import Departures
from trainwright_backend.scheduling.device_queue import DeviceQueue
from trainwright_backend.scheduling.fair_share import FairOrder
from trainwright_backend.scheduling.limit_gate import LimitGate
from trainwright_backend.scheduling.node_capacity import NodeCapacity
from trainwright_backend.scheduling.node_pool import NodePool
from trainwright_backend.scheduling.occupants import RunOnNodes
from trainwright_backend.scheduling.placement_round import Plan, plan_queue
from trainwright_backend.teams.slot_quota import SlotBudget
from trainwright_backend.teams.usage import HALF_LIFE_DAYS

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = 86_400.0
SAVE_SECONDS = 90.0
MIN_RUN_MINUTES = 30.0


@dataclass(frozen=True)
class Team:
    name: str
    limit: int
    share: int

    @property
    def id(self) -> UUID:
        return UUID(int=sum(letter << (8 * place) for place, letter in enumerate(self.name.encode())))


@dataclass
class Job:
    """A run, as the script submits it and as the simulation executes it."""

    number: int
    team: Team
    slots: int
    """On each node."""
    nodes: int
    priority: int
    seconds: float
    """How long it really takes."""
    estimate: float | None
    """How long it is expected to take."""
    submitted: float
    done: float = 0.0
    """Seconds that it has worked."""
    on: tuple[int, ...] = ()
    """Indices of its nodes."""
    started: float = 0.0
    """Start of its attempt."""
    leaving: bool = False
    until: float | None = None
    """Set if it was placed ahead of its turn."""
    ahead_of: int | None = None
    attempt: int = 0
    ended: float | None = None
    starts: list[float] = field(default_factory=list)

    @property
    def id(self) -> UUID:
        return UUID(int=self.number + 1)

    @property
    def all_slots(self) -> int:
        return self.slots * self.nodes

    @property
    def left(self) -> float | None:
        """Expected seconds for the rest, if it waits."""
        return None if self.estimate is None else max(self.estimate - self.done, 60.0)

    def left_at(self, time: float) -> float | None:
        """Expected seconds on its nodes."""
        if self.leaving:
            return 0.0
        return None if self.estimate is None else max(self.estimate - self.done - (time - self.started), 60.0)


@dataclass(frozen=True)
class Decisions:
    """What one round decides."""

    placed: dict[int, tuple[int, ...]]
    early: dict[int, tuple[int, float]]
    """Placed ahead of their turn: the run that waits, and until when."""
    preempted: dict[int, int]
    """The run that gets the slots."""


@dataclass
class Cluster:
    """Nodes, teams and their runs at one time."""

    sizes: tuple[int, ...]
    teams: tuple[Team, ...]
    time: float = 0.0
    waiting: list[Job] = field(default_factory=list)
    running: list[Job] = field(default_factory=list)
    ended: list[Job] = field(default_factory=list)
    used: dict[tuple[str, int], float] = field(default_factory=dict)
    """Slot-seconds by team and day."""
    _events: list[tuple[float, int, Callable[[], object]]] = field(default_factory=list)
    _order: Iterator[int] = field(default_factory=itertools.count)

    def free(self) -> list[int]:
        """Free slots by node."""
        found = list(self.sizes)
        for job in self.running:
            for node in job.on:
                found[node] -= job.slots
        return found

    def held(self, team: Team) -> int:
        return sum(job.all_slots for job in self.running if job.team == team)

    def usage(self, team: Team) -> float:
        """Decayed slot-seconds."""
        today = int(self.time // DAY)
        total: float = sum(
            seconds * 0.5 ** ((today - day) / HALF_LIFE_DAYS)
            for (name, day), seconds in self.used.items()
            if name == team.name
        )
        return total

    def submit(self, job: Job) -> None:
        self.at(job.submitted, lambda: self.waiting.append(job))

    def at(self, time: float, action: Callable[[], object]) -> None:
        heapq.heappush(self._events, (time, next(self._order), action))

    def run(self, decide: Callable[["Cluster"], Decisions], until: float) -> None:
        """Let time pass, with rounds after each event until nothing more is placed."""
        while self._events and self._events[0][0] <= until:
            time, _, action = heapq.heappop(self._events)
            self._pass(time)
            action()
            while self._events and self._events[0][0] == time:
                heapq.heappop(self._events)[2]()
            placed = True
            while placed:
                decisions = decide(self)
                self._apply(decisions)
                placed = bool(decisions.placed)

    def _pass(self, time: float) -> None:
        for job in self.running:
            key = (job.team.name, int(self.time // DAY))
            self.used[key] = self.used.get(key, 0.0) + job.all_slots * (time - self.time)
        self.time = time

    def _apply(self, decisions: Decisions) -> None:
        for number, nodes in decisions.placed.items():
            job = next(job for job in self.waiting if job.number == number)
            self.waiting.remove(job)
            self.running.append(job)
            job.on, job.started, job.attempt = nodes, self.time, job.attempt + 1
            job.starts.append(self.time)
            job.ahead_of, job.until = decisions.early.get(number, (None, None))
            self.at(self.time + job.seconds - job.done, partial(self._end, job, job.attempt))
            self.at(self.time + MIN_RUN_MINUTES * 60, lambda: None)
            if job.until is not None:
                self.at(job.until, lambda: None)
        for number in decisions.preempted:
            job = next(job for job in self.running if job.number == number)
            job.leaving = True
            self.at(self.time + SAVE_SECONDS, partial(self._leave, job, job.attempt))

    def _end(self, job: Job, attempt: int) -> None:
        if job.attempt == attempt and job in self.running:
            self.running.remove(job)
            job.ended, job.leaving, job.on = self.time, False, ()
            self.ended.append(job)

    def _leave(self, job: Job, attempt: int) -> None:
        """It saved; the time of the save is not training."""
        if job.attempt == attempt and job in self.running:
            self.running.remove(job)
            job.done += self.time - job.started - SAVE_SECONDS
            job.leaving, job.on = False, ()
            self.waiting.append(job)


def planned(cluster: Cluster) -> Decisions:
    """The decisions of the platform."""
    jobs = {job.id: job for job in (*cluster.waiting, *cluster.running)}
    plan = Plan()
    plan_queue(plan, device_queue(cluster))
    return Decisions(
        {jobs[run].number: tuple(node.int - 1 for node in nodes) for run, nodes in plan.placements.items()},
        {
            jobs[run].number: (jobs[early.ahead_of].number, (early.until - START).total_seconds())
            for run, early in plan.backfills.items()
        },
        {jobs[run].number: jobs[other].number for run, other in plan.preemptions.items()},
    )


def device_queue(cluster: Cluster) -> DeviceQueue:
    """The cluster as the platform sees it."""
    at = START + timedelta(seconds=cluster.time)
    nodes = [_node(index, size) for index, size in enumerate(cluster.sizes)]
    capacities = [
        NodeCapacity.of(node, {"cuda": list(range(free))})
        for node, free in zip(nodes, cluster.free(), strict=True)
    ]
    budgets = {team.id: SlotBudget(team.limit, cluster.held(team), team.share) for team in cluster.teams}
    jobs = {job.id: job for job in (*cluster.waiting, *cluster.running)}
    waiting = sorted(cluster.waiting, key=lambda job: (-job.priority, job.number))
    usage = {team.id: cluster.usage(team) for team in cluster.teams}
    on_nodes = [_on_nodes(job, cluster.time) for job in sorted(cluster.running, key=lambda job: job.number)]
    return DeviceQueue(
        runs=FairOrder([run_of(job) for job in waiting], usage, budgets),
        pool=NodePool(capacities, []),
        budgets=budgets,
        holders={},
        gate=LimitGate(MeasuredLimits({}, {}, {}), MeasuredStorage({}), {}),
        departures=Departures(on_nodes, budgets, at, MIN_RUN_MINUTES),
        duration_of=lambda run: jobs[run.id].left,
    )


def _node(index: int, size: int) -> Node:
    return Node(
        id=UUID(int=index + 1),
        name=f"node-{index}",
        inventory=inventory(0, size) | {"peer_address": f"10.0.0.{index}"},
        allowed_slots=None,
        busy_slots={},
        draining=False,
        quarantined=None,
    )


def run_of(job: Job) -> Run:
    """The row of a waiting run."""
    return Run(
        id=job.id,
        team_id=job.team.id,
        name=f"run {job.number}",
        spec={},  # so it needs nothing but slots
        device="cuda",
        slots=job.all_slots,
        nodes=job.nodes,
        priority=job.priority,
        avoided_nodes=[],
        state=RunState.QUEUED,
        waiting_reason="",
    )


def _on_nodes(job: Job, time: float) -> RunOnNodes:
    return RunOnNodes(
        team_id=job.team.id,
        slots=job.all_slots,
        seconds_left=job.left_at(time),
        run_id=job.id,
        created_by=None,
        name=f"run {job.number}",
        priority=job.priority,
        slots_by_node={UUID(int=node + 1): job.slots for node in job.on},
        leaving=job.leaving,
        attempt_started=None if job.leaving else START + timedelta(seconds=job.started),
        backfill_until=None if job.until is None else START + timedelta(seconds=job.until),
        backfill_for=None if job.ahead_of is None else UUID(int=job.ahead_of + 1),
    )
