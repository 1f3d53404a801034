"""Choosing nodes for queued runs.

Runs that their teams' guaranteed shares cover go first; the others borrow. Otherwise teams take turns by their use
(`fair_share`). A team's runs are placed by priority, then in the order that people gave them or in which they were submitted. A
run is placed with all its nodes and slots or not at all, and only within its team's limit: beyond it, the run waits for the
team's other runs, and the team's later runs do not delay it. Teams do not wait for each other's limits. Other limits of
teams and members (`limit_gate`) make single runs wait, and others pass them. So does a run that needs more than the whole limit.

A node that is drained or in quarantine gets no runs. A node does not get a run if it lacks the run's engine, or the memory for
the rank that needs the most. A node with too little host memory for the run's checkpoints and offload does not get it either,
as long as other nodes have enough.

A run that does not fit now reserves nodes, so that later small runs cannot starve a large one. Nodes that are too small for
it stay available. A run on one node reserves all nodes that could ever run it. A run on several nodes reserves as many as it
needs, among nodes that can reach each other, those with the most free slots first.

A run that waits for its next attempt may go on with fewer nodes (`fewer_nodes`). Until it does, it reserves those that it would get.

If other runs leave their nodes soon, a waiting run gets their slots instead. A run that its team's share covers makes borrowing
runs leave (`departures`).

A run is placed ahead of its turn (backfill) on reserved nodes if it ends before any of the runs that reserve them is expected to
start, and within its team's limit if it ends before the team's run that waits for the limit is expected to start. It must be known
how long it takes (`durations`), and when the runs on these nodes, or of this team, end.

The plan is made for all runs in one snapshot and changes nothing: `placement` executes it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import inf
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.orm import load_only

from trainwright.contracts.agent_protocol import Timers
from trainwright.contracts.api.datasets import PreparationState
from trainwright.contracts.parallelism_spec import Device
from trainwright.contracts.run_state import RunState
from trainwright_backend.core.db import Read, now
from trainwright_backend.datasets.tables import Preparation
from trainwright_backend.runs.queue import queue_order
from trainwright_backend.runs.tables import Placement, Run
from trainwright_backend.scheduling.departures import Departures
from trainwright_backend.scheduling.device_queue import DeviceQueue
from trainwright_backend.scheduling.durations import Durations, MeasuredRates
from trainwright_backend.scheduling.fair_share import FairOrder
from trainwright_backend.scheduling.fewer_nodes import elastic_runs, needs_on_fewer
from trainwright_backend.scheduling.limit_gate import LimitGate
from trainwright_backend.scheduling.node_capacity import NodeCapacity, Reservation, read_capacities
from trainwright_backend.scheduling.node_choice import choose_nodes, longest_gap, nodes_to_reserve
from trainwright_backend.scheduling.node_pool import Match, NodePool
from trainwright_backend.scheduling.occupants import RunOnNodes, runs_on_nodes
from trainwright_backend.scheduling.requirements import needs_of
from trainwright_backend.scheduling.waiting_reasons import covered_by_share
from trainwright_backend.teams.slot_quota import slot_budgets
from trainwright_backend.teams.usage import decayed_usage

MAX_CONSIDERED = 200
"""Runs at the head of a device's queue that one round considers."""

BACKFILL_SLACK_SECONDS = 120.0
"""Added to the expected duration of a run that is placed ahead of its turn, for starting, saving and exporting."""


_COLUMNS = (
    *(Run.id, Run.team_id, Run.created_by, Run.created_by_name, Run.name, Run.priority, Run.queue_place),
    *(Run.spec, Run.device, Run.nodes, Run.slots, Run.avoided_nodes, Run.state, Run.reason, Run.attempt),
    *(Run.waiting_reason, Run.last_step, Run.forked_step),
    *(Run.max_seconds, Run.occupied_seconds, Run.metered_until),
)
"""What a round reads of waiting runs, which have twice as many columns. Reading another column is an error."""


@dataclass(frozen=True)
class Backfill:
    """A run is placed ahead of its turn."""

    ahead_of: UUID
    """The waiting run whose slots it gets."""
    until: datetime
    """When that run is expected to start."""


@dataclass
class Plan:
    """The result of planning a round."""

    placements: dict[UUID, tuple[UUID, ...]] = field(default_factory=dict)
    """Nodes by run, in the order of their ranks, for the runs that can be placed."""
    backfills: dict[UUID, Backfill] = field(default_factory=dict)
    """Those of them that are placed ahead of their turn."""
    preemptions: dict[UUID, UUID] = field(default_factory=dict)
    """Runs that are asked to leave their nodes, with the waiting run that gets the slots."""
    reasons: dict[UUID, str] = field(default_factory=dict)
    """What the other runs wait for, if it has changed."""

    def explain(self, run: Run, reason: str) -> None:
        if run.waiting_reason != reason:
            self.reasons[run.id] = reason


def plan_round(
    session: Read, timers: Timers, min_run_minutes: float = 0.0, rates: MeasuredRates | None = None
) -> Plan:
    """Choose nodes for the runs at the head of the queues, the runs that leave for them, and the waiting reasons of the others.

    Args:
        session: one snapshot.
        timers: they say which nodes are online.
        min_run_minutes: how long a run that borrows keeps its slots.
        rates: speeds that earlier rounds looked up.
    """
    plan = Plan()
    for run, preparation in _still_preparing(session):
        plan.explain(run, _preparing(preparation))
    for queue in device_queues(
        session, timers, min_run_minutes, Durations(session, rates or MeasuredRates())
    ):
        plan_queue(plan, queue)
    return plan


def device_queues(
    session: Read, timers: Timers, min_run_minutes: float, durations: Durations
) -> Iterator[DeviceQueue]:
    """The waiting runs of each device, and all that decides about them. They share nodes and limits, so each is planned before
    the next is read."""
    queues = [queue for device in _queued_devices(session) if (queue := waiting_heads(session, device))]
    if not queues:
        return
    pool = NodePool(*read_capacities(session, timers))
    gate = LimitGate.load(session, [run for runs in queues for run in runs])
    for runs in queues:
        device = runs[0].device
        budgets, on_nodes = slot_budgets(session, device), runs_on_nodes(session, device)
        yield DeviceQueue(
            runs=FairOrder(runs, decayed_usage(session, device), budgets),
            pool=pool,
            budgets=budgets,
            holders=_holders(on_nodes),
            gate=gate,
            elastic=elastic_runs(session, runs, timers),
            timers=timers,
            departures=Departures(on_nodes, budgets, now(), min_run_minutes),
            duration_of=durations.of,
        )


def _holders(on_nodes: Iterable[RunOnNodes]) -> dict[UUID, list[str]]:
    """Names of the runs that hold slots, by team, oldest first."""
    found: dict[UUID, list[str]] = {}
    for run in on_nodes:
        found.setdefault(run.team_id, []).append(run.name)
    return found


def _queued_devices(session: Read) -> list[Device]:
    """The devices for which runs are queued, GPUs first."""
    queued = set(session.scalars(select(Run.device).where(Run.state == RunState.QUEUED).distinct()))
    return [device for device in (Device.CUDA, Device.CPU) if device in queued]


def waiting_heads(session: Read, device: Device) -> Sequence[Run]:
    """The heads of the teams' queues for a device: unplaced runs with prepared data, each team's in their order."""
    placed = select(Placement.run_id).where(Placement.claim_id.is_(None))
    turn = func.row_number().over(partition_by=Run.team_id, order_by=queue_order()).label("turn")
    waiting = (
        select(Run.id, turn)
        .join(Preparation, Preparation.id == Run.preparation_id)
        .where(Run.state == RunState.QUEUED, Run.device == device, Run.id.not_in(placed))
        .where(Preparation.state == PreparationState.READY)
        .subquery()
    )
    heads = select(Run).join(waiting, waiting.c.id == Run.id).order_by(waiting.c.turn, Run.id)
    return session.scalars(heads.options(load_only(*_COLUMNS, raiseload=True)).limit(MAX_CONSIDERED)).all()


def _still_preparing(session: Read) -> list[tuple[Run, Preparation]]:
    at_work = (PreparationState.WAITING, PreparationState.WORKING)
    rows = (
        select(Run, Preparation)
        .join(Preparation, Preparation.id == Run.preparation_id)
        .where(Run.state == RunState.QUEUED, Preparation.state.in_(at_work))
        .order_by(Run.id)
        .limit(MAX_CONSIDERED)
    )
    return [(run, preparation) for run, preparation in session.execute(rows).all()]


def plan_queue(plan: Plan, queue: DeviceQueue) -> None:
    """Plan the runs of one device, in their order."""
    for run in queue.runs:
        budget = queue.budget_of(run)
        if budget.used + run.slots > budget.limit or not _ends_before_the_limit_is_needed(queue, run):
            _wait_for_limit(plan, queue, run)
            continue
        if (held_back := queue.gate.why_waits(run)) is not None:
            plan.explain(run, held_back)
            continue
        match = queue.match(run)
        chosen = _choose(match) or _fewer_nodes(queue, run) or _ahead_of_turn(plan, queue, run, match)
        if chosen:
            plan.placements[run.id] = tuple(capacity.id for capacity in chosen)
            _add_backfill(plan, queue, run, queue.at_limit.get(run.team_id))
            queue.take(run, chosen)
            continue
        if run.team_id in queue.at_limit:
            _wait_for_limit(plan, queue, run)
            continue
        covered = budget.covers(run.slots)
        reason = queue.node_reason(run, match)
        leaving = _wait_for_nodes(queue, run, match, covered=covered)
        plan.explain(run, reason + covered_by_share(covered, has_room=leaving is not None))
        plan.preemptions |= dict.fromkeys(leaving or (), run.id)
        budget.awaited += run.slots


def _wait_for_limit(plan: Plan, queue: DeviceQueue, run: Run) -> None:
    """Let a run wait for its team's limit. For the first such run of a team, late runs that were placed ahead of it leave."""
    budget = queue.budget_of(run)
    plan.explain(run, queue.quota_reason(run, budget))
    if run.team_id in queue.at_limit or run.slots > budget.limit:
        return
    queue.at_limit[run.team_id] = Reservation(run.id, queue.departures.expected_room_in_limit(run, budget))
    plan.preemptions |= dict.fromkeys(queue.departures.make_room_in_limit(run, budget), run.id)


def _ends_before_the_limit_is_needed(queue: DeviceQueue, run: Run) -> bool:
    """Whether the run ends before an earlier run of its team, which waits for the team's limit, is expected to start."""
    head = queue.at_limit.get(run.team_id)
    if head is None:
        return True
    seconds = queue.duration_of(run) if head.start >= BACKFILL_SLACK_SECONDS else None
    return seconds is not None and seconds + BACKFILL_SLACK_SECONDS <= head.start


def _choose(match: Match, seconds: float = inf) -> list[NodeCapacity]:
    """The nodes for a run that takes so long; none if it does not fit now. Runs with equal needs that take too long are not tried
    one by one."""
    if seconds > match.max_free_seconds:
        return []
    chosen = choose_nodes(match, seconds)
    if not chosen:
        match.max_free_seconds = longest_gap(match)
    return chosen


def _fewer_nodes(queue: DeviceQueue, run: Run) -> list[NodeCapacity]:
    """Fewer nodes for a run that has waited for more; none if it may not, or too few are free."""
    if not queue.elastic.get(run.id, False):
        return []
    needs = needs_of(run)
    free = sum(capacity.can_run_now(needs) for capacity in queue.pool.available)
    fewer = (choose_nodes(queue.pool.match_run(run, needs)) for needs in needs_on_fewer(run, free))
    return next(filter(None, fewer), [])


def _ahead_of_turn(plan: Plan, queue: DeviceQueue, run: Run, match: Match) -> list[NodeCapacity]:
    """Nodes for a run that ends before the earlier runs that reserve them are expected to start; none if it does not."""
    if queue.latest_start < BACKFILL_SLACK_SECONDS or not _choose(match, BACKFILL_SLACK_SECONDS):
        return []
    seconds, device = queue.duration_of(run), match.needs.device
    chosen = [] if seconds is None else _choose(match, seconds + BACKFILL_SLACK_SECONDS)
    for capacity in chosen:
        _add_backfill(plan, queue, run, capacity.reservations.get(device))
    return chosen


def _add_backfill(plan: Plan, queue: DeviceQueue, run: Run, waiting: Reservation | None) -> None:
    """Note whom a run is placed ahead of. Of several, it is the one that is expected to start first."""
    if waiting is None:
        return
    until = queue.departures.at + timedelta(seconds=waiting.start)
    if run.id not in plan.backfills or until < plan.backfills[run.id].until:
        plan.backfills[run.id] = Backfill(waiting.run_id, until)


def _wait_for_nodes(queue: DeviceQueue, run: Run, match: Match, *, covered: bool) -> list[UUID] | None:
    """Set slots aside that become free, or reserve nodes.

    Returns:
        The runs to pre-empt, which may be none; None if nodes are reserved instead.
    """
    if match.is_reserving:  # an earlier run has reserved the same nodes
        return None
    leaving = queue.departures.make_room(run.id, match, covered=covered)
    if leaving is not None:
        queue.pool.slots_were_taken()
        return leaving
    if reserved := nodes_to_reserve(match) or _fewer_to_reserve(queue, run):
        start = 0.0 if covered else queue.departures.expected_start(match)
        for capacity in reserved:
            capacity.reserve(run.device, Reservation(run.id, start))
        queue.latest_start = max(queue.latest_start, start)
    match.is_reserving = match.needs.nodes == 1
    return None


def _fewer_to_reserve(queue: DeviceQueue, run: Run) -> list[NodeCapacity]:
    """The nodes that are kept free for a run that may go on with fewer, if too few could ever run it as it is."""
    if run.id not in queue.elastic:
        return []
    capable = queue.pool.match_run(run, needs_of(run, run.min_nodes)).together
    unreserved = sum(run.device not in capacity.reservations for capacity in capable)
    for needs in needs_on_fewer(run, unreserved):
        match = queue.pool.match_run(run, needs)
        if found := choose_nodes(match) or nodes_to_reserve(match):
            return found
    return []


def _preparing(preparation: Preparation) -> str:
    if preparation.shards_total is None:
        return "preparing its data"
    return f"preparing, {preparation.shards_done} of {preparation.shards_total} shards"
