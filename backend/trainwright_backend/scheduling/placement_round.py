"""Choosing nodes for queued runs.

Runs that their teams' guaranteed shares cover go first; the others borrow. Otherwise teams take turns by their use
(`fair_share`). A team's runs are placed by priority, then in the order that people gave them or in which they were submitted. A
run is placed with all its nodes and slots or not at all, and only within its team's limit: beyond it, the run waits for the
team's other runs, and the team's later runs do not overtake it. Teams do not wait for each other's limits. Other limits of
teams and members (`limit_gate`) make single runs wait, and others pass them.

A node that is drained or in quarantine gets no runs. A node does not get a run if it lacks the run's engine or the memory for
its fullest rank. A node with too little host memory for the run's offload does not get it either, as long as other nodes have
enough.

A run that does not fit now reserves nodes, so that later small runs cannot starve a large one. Nodes that are too small for
it stay available. A run on one node reserves all nodes that could ever run it. A run on several nodes reserves as many as it
needs, among nodes that can reach each other, those with the most free slots first.

A run that waits for its next attempt may go on with fewer nodes (`fewer_nodes`). Until it does, it reserves those that it would get.

If other runs leave their nodes soon, a waiting run gets their slots instead. A run that its team's share covers makes borrowing
runs leave (`departures`).

A run is placed ahead of its turn on reserved nodes if it ends before any of the runs that reserve them is expected to start
(backfill). It must be known how long it takes (`durations`), and when the runs on these nodes end.

A run on one node gets the fullest node with enough free slots, so that large gaps remain. A run on several nodes gets nodes
from as few locations as possible, ordered by location, so that neighbouring ranks are near each other.

The plan is made for all runs in one snapshot and changes nothing: `placement` executes it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import inf
from uuid import UUID

from sqlalchemy import func, select

from trainwright.contracts.agent_protocol import Timers
from trainwright.contracts.api.datasets import PreparationState
from trainwright.contracts.parallelism_spec import Device
from trainwright.contracts.run_state import RunState
from trainwright_backend.core.db import Read, now
from trainwright_backend.datasets.tables import Preparation
from trainwright_backend.nodes.service import is_online, taken_slots, takes_runs
from trainwright_backend.nodes.tables import Node
from trainwright_backend.runs.queue import queue_order
from trainwright_backend.runs.tables import Placement, Run
from trainwright_backend.scheduling.departures import Departures
from trainwright_backend.scheduling.durations import Durations, MeasuredRates
from trainwright_backend.scheduling.fair_share import FairOrder
from trainwright_backend.scheduling.fewer_nodes import elastic_runs, needs_on_fewer, waits_for_spare
from trainwright_backend.scheduling.limit_gate import LimitGate
from trainwright_backend.scheduling.moving import avoids, not_avoided
from trainwright_backend.scheduling.node_capacity import NodeCapacity, Reservation, within_reach
from trainwright_backend.scheduling.occupants import RunOnNodes, runs_on_nodes
from trainwright_backend.scheduling.preemption import was_preempted
from trainwright_backend.scheduling.requirements import Needs, needs_of
from trainwright_backend.scheduling.waiting_reasons import covered_by_share, in_line, waits_for
from trainwright_backend.teams.slot_quota import SlotBudget, slot_budgets, waits_for_quota
from trainwright_backend.teams.usage import decayed_usage

MAX_CONSIDERED = 200
"""Runs at the head of a device's queue that one round considers."""

BACKFILL_SLACK_SECONDS = 120.0
"""Added to the expected duration of a run that is placed ahead of its turn, for starting, saving and exporting."""


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


@dataclass
class DeviceQueue:
    """The waiting runs of one device, in their order, and what they can get."""

    runs: Iterable[Run]
    available: list[NodeCapacity]
    unavailable: list[NodeCapacity]
    """Drained, in quarantine or offline."""
    budgets: dict[UUID, SlotBudget]
    """What each team may hold, and what it holds."""
    holders: dict[UUID, list[str]]
    """Names of the runs that hold slots, by team."""
    gate: LimitGate
    """The other limits of teams and members."""
    departures: Departures
    """The runs on slots, and when they leave."""
    duration_of: Callable[[Run], float | None]
    """How long a waiting run will keep its slots, if that is known."""
    elastic: Mapping[UUID, bool] = field(default_factory=dict)
    """Runs that may go on with fewer nodes, and whether they have waited long enough for it."""
    timers: Timers = field(default_factory=Timers)
    full: set[UUID] = field(default_factory=set)
    """Teams at their limit."""
    waiting: dict[UUID, list[str]] = field(default_factory=dict)
    """Names of the runs that wait, by team, so far in this round."""
    wait_for_nodes: set[UUID] = field(default_factory=set)
    """Teams with runs that wait for nodes, so far in this round."""
    too_large: set[Needs] = field(default_factory=set)
    """Needs that no nodes meet now. In a round, free slots only become fewer."""
    together: dict[Needs, list[NodeCapacity]] = field(default_factory=dict)
    """Nodes that could run a run with these needs together."""
    reserving: set[Needs] = field(default_factory=set)
    """Needs of runs on one node that reserve all nodes that could ever run them."""
    latest_start: float = 0.0
    """The latest expected start of a run that reserves nodes, in seconds."""
    sentences: dict[Needs, str] = field(default_factory=dict)
    """What runs with these needs wait for, since the last placement in this round."""

    def budget_of(self, run: Run) -> SlotBudget:
        return self.budgets.setdefault(run.team_id, SlotBudget(0, 0))

    def suited(self, run: Run, needs: Needs) -> list[NodeCapacity]:
        """The nodes that the run may be placed on, with so much memory for its offload as there is."""
        return not_avoided(run, _suited(self.available, self.unavailable, needs))

    def able(self, run: Run, needs: Needs) -> list[NodeCapacity]:
        """The nodes that could run the run together, if nothing else ran there."""
        able = None if run.avoided_nodes else self.together.get(needs)
        if able is None:
            suited = self.suited(run, needs)
            able = within_reach([capacity for capacity in suited if capacity.could_run(needs)], needs)
        if not run.avoided_nodes:
            self.together[needs] = able
        return able

    def quota_reason(self, run: Run, budget: SlotBudget) -> str:
        """What a run of a team at its limit waits for, and behind which of the team's waiting runs."""
        holders = self.holders.get(run.team_id, [])
        return waits_for_quota(run.device, run.slots, budget, holders) + self._place_in_team(run)

    def node_reason(self, run: Run, needs: Needs) -> str:
        """What a run that no nodes can take waits for, and behind whose runs."""
        reason = None if run.avoided_nodes else self.sentences.get(needs)
        if reason is None:
            reason = waits_for(needs, self.suited(run, needs), self.unavailable)
        if not run.avoided_nodes:
            self.sentences[needs] = reason
        others = self.wait_for_nodes - {run.team_id}
        self.wait_for_nodes.add(run.team_id)
        place = self._place_in_team(run) or ("; other teams' runs are ahead" if others else "")
        later = waits_for_spare(run, self.timers) if run.id in self.elastic else ""
        return reason + place + later + avoids(run) + was_preempted(run)

    def _place_in_team(self, run: Run) -> str:
        mine = self.waiting.setdefault(run.team_id, [])
        mine.append(run.name)
        return in_line(len(mine), mine[-2]) if len(mine) > 1 else ""


def plan(
    session: Read, timers: Timers, min_run_minutes: float = 0.0, rates: MeasuredRates | None = None
) -> Plan:
    """Choose nodes for the runs at the head of the queues, the runs that leave for them, and the waiting reasons of the others.

    Args:
        session: one snapshot.
        timers: they say which nodes are online.
        min_run_minutes: how long a run that borrows keeps its slots.
        rates: speeds that earlier rounds looked up.
    """
    found = Plan()
    for run, preparation in _still_preparing(session):
        found.explain(run, _preparing(preparation))
    queues = [queue for device in (Device.CUDA, Device.CPU) if (queue := waiting_heads(session, device))]
    if not queues:
        return found
    nodes = session.scalars(select(Node).order_by(Node.id)).all()
    taken = taken_slots(session)
    online = [
        NodeCapacity.measure(node, taken.get(node.id, ())) for node in nodes if is_online(node, now(), timers)
    ]
    available = [capacity for capacity in online if takes_runs(capacity.node)]
    usable = {capacity.node.id for capacity in available}
    unavailable = [NodeCapacity(node, {}) for node in nodes if node.id not in usable]
    gate = LimitGate.load(session, [run for runs in queues for run in runs])
    durations = Durations(session, rates or MeasuredRates())
    for runs in queues:
        device = runs[0].device
        budgets, on_nodes = slot_budgets(session, device), runs_on_nodes(session, device)
        plan_queue(
            found,
            DeviceQueue(
                runs=FairOrder(runs, decayed_usage(session, device), budgets),
                available=available,
                unavailable=unavailable,
                budgets=budgets,
                holders=_holders(on_nodes),
                gate=gate,
                elastic=elastic_runs(session, runs, timers),
                timers=timers,
                departures=Departures(on_nodes, budgets, now(), min_run_minutes),
                duration_of=durations.of,
            ),
        )
    return found


def _holders(on_nodes: Iterable[RunOnNodes]) -> dict[UUID, list[str]]:
    """Names of the runs that hold slots, by team, oldest first."""
    found: dict[UUID, list[str]] = {}
    for run in on_nodes:
        found.setdefault(run.team_id, []).append(run.name)
    return found


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
    return session.scalars(heads.limit(MAX_CONSIDERED)).all()


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


def plan_queue(found: Plan, line: DeviceQueue) -> None:
    """Plan the runs of one device, in their order."""
    for run in line.runs:
        needs = needs_of(run)
        budget = line.budget_of(run)
        if run.team_id in line.full or budget.used + run.slots > budget.limit:
            line.full.add(run.team_id)
            found.explain(run, line.quota_reason(run, budget))
            continue
        if (held_back := line.gate.why_waits(run)) is not None:
            found.explain(run, held_back)
            continue
        chosen = (
            _choose(line, run, needs) or _fewer_nodes(line, run) or _ahead_of_turn(found, line, run, needs)
        )
        if chosen:
            found.placements[run.id] = tuple(capacity.node.id for capacity in chosen)
            budget.used += needs.slots * len(chosen)
            line.gate.admit(run)
            line.holders.setdefault(run.team_id, []).append(run.name)
            for capacity in chosen:
                del capacity.free[needs.device][: needs.slots]
            line.sentences.clear()
            continue
        covered = budget.covers(run.slots)
        reason = line.node_reason(run, needs)
        leaving = _wait_for_nodes(line, run, needs, covered=covered)
        found.explain(run, reason + covered_by_share(covered, has_room=leaving is not None))
        found.preemptions |= dict.fromkeys(leaving or (), run.id)
        budget.awaited += run.slots


def _wait_for_nodes(line: DeviceQueue, run: Run, needs: Needs, *, covered: bool) -> list[UUID] | None:
    """Set slots aside that become free, or reserve nodes.

    Returns:
        The runs to pre-empt, which may be none; None if nodes are reserved instead.
    """
    if needs in line.reserving:  # an earlier run has reserved the same nodes
        return None
    suited = line.suited(run, needs)
    leaving = line.departures.make_room(run.id, needs, suited, covered=covered)
    if leaving is not None:
        line.sentences.clear()
        return leaving
    start = 0.0 if covered else line.departures.expected_start(needs, suited)
    for capacity in _to_reserve(line.able(run, needs), needs) or _fewer_to_reserve(line, run):
        capacity.reserve(needs.device, Reservation(run.id, start))
    line.latest_start = max(line.latest_start, start)
    if needs.nodes == 1 and not run.avoided_nodes:
        line.reserving.add(needs)
    return None


def _ahead_of_turn(found: Plan, line: DeviceQueue, run: Run, needs: Needs) -> list[NodeCapacity]:
    """Nodes for a run that ends before the earlier runs that reserve them are expected to start; none if it does not."""
    if line.latest_start < BACKFILL_SLACK_SECONDS:
        return []
    suited = line.suited(run, needs)
    if not _fitting(suited, needs, BACKFILL_SLACK_SECONDS):
        return []
    seconds = line.duration_of(run)
    chosen = [] if seconds is None else _fitting(suited, needs, seconds + BACKFILL_SLACK_SECONDS)
    if reservations := [
        capacity.reservations[needs.device] for capacity in chosen if needs.device in capacity.reservations
    ]:
        first = min(reservations, key=lambda reservation: reservation.start)
        until = line.departures.at + timedelta(seconds=first.start)
        found.backfills[run.id] = Backfill(first.run_id, until)
    return chosen


def _choose(line: DeviceQueue, run: Run, needs: Needs) -> list[NodeCapacity]:
    """The nodes for the run; none if it does not fit now. Runs with equal needs are tried once."""
    if needs in line.too_large and not run.avoided_nodes:
        return []
    chosen = _fitting(line.suited(run, needs), needs)
    if not chosen and not run.avoided_nodes:
        line.too_large.add(needs)
    return chosen


def _suited(
    available: list[NodeCapacity], unavailable: list[NodeCapacity], needs: Needs
) -> list[NodeCapacity]:
    """The nodes with enough host memory for the run's offload; all nodes if none has enough, since the plan
    warned of it."""
    if not needs.host_bytes:
        return available
    able = [capacity for capacity in available if capacity.could_offload(needs)]
    others = [capacity for capacity in unavailable if capacity.could_offload(needs)]
    return able if len(able) >= needs.nodes or len(able) + len(others) >= needs.nodes else available


def _fitting(available: list[NodeCapacity], needs: Needs, seconds: float = inf) -> list[NodeCapacity]:
    """The nodes for the run, in the order of their ranks; none if it does not fit now. ``seconds``: how long it takes."""
    able = [capacity for capacity in available if capacity.can_run_now(needs, seconds)]
    if len(able) < needs.nodes or len(able := within_reach(able, needs)) < needs.nodes:
        return []
    able.sort(key=lambda capacity: (len(capacity.free[needs.device]), capacity.node.name))
    chosen = able[: needs.nodes] if needs.nodes == 1 else _near_each_other(able, needs.nodes)
    return sorted(chosen, key=lambda capacity: (capacity.location, capacity.node.name))


def _fewer_nodes(line: DeviceQueue, run: Run) -> list[NodeCapacity]:
    """Fewer nodes for a run that has waited for more; none if it may not, or too few are free."""
    if not line.elastic.get(run.id, False):
        return []
    free = sum(capacity.can_run_now(needs_of(run)) for capacity in line.available)
    fewer = (_fitting(line.suited(run, needs), needs) for needs in needs_on_fewer(run, free))
    return next(filter(None, fewer), [])


def _near_each_other(able: list[NodeCapacity], count: int) -> list[NodeCapacity]:
    """``count`` of the nodes: of the smallest location that has enough of them, otherwise of as few as possible."""
    by_location: dict[str, list[NodeCapacity]] = {}
    for capacity in able:
        by_location.setdefault(capacity.location, []).append(capacity)
    locations = sorted(by_location.values(), key=len)
    enough = next((nodes for nodes in locations if len(nodes) >= count), None)
    if enough is not None:
        return enough[:count]
    return [capacity for nodes in reversed(locations) for capacity in nodes][:count]


def _to_reserve(able: Sequence[NodeCapacity], needs: Needs) -> list[NodeCapacity]:
    """Those of the nodes that are kept free for a run that does not fit now."""
    if needs.nodes > 1 and len(able) < needs.nodes:  # they would wait for nodes that do not exist
        return []
    if needs.nodes == 1:
        return list(able)
    able = [capacity for capacity in able if needs.device not in capacity.reservations]
    able.sort(key=lambda capacity: (-len(capacity.free[needs.device]), capacity.node.name))
    return able[: needs.nodes]


def _fewer_to_reserve(line: DeviceQueue, run: Run) -> list[NodeCapacity]:
    """The nodes that are kept free for a run that may go on with fewer, if too few could ever run it as it is."""
    if run.id not in line.elastic:
        return []
    able = line.able(run, needs_of(run, run.min_nodes))
    unreserved = sum(run.device not in capacity.reservations for capacity in able)
    for needs in needs_on_fewer(run, unreserved):
        if found := _fitting(line.suited(run, needs), needs) or _to_reserve(line.able(run, needs), needs):
            return found
    return []


def _preparing(preparation: Preparation) -> str:
    if preparation.shards_total is None:
        return "preparing its data"
    return f"preparing, {preparation.shards_done} of {preparation.shards_total} shards"
