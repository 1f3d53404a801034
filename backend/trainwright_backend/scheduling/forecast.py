"""When waiting runs are expected to start.

A run on nodes is expected to end at its own estimate of the time left. Before it has one, and while it waits, it is expected to
last as long as an equal run that was measured (`durations`). No run is expected to last longer than its maximum run time. Slots
are counted as one pool for all nodes, so a run that needs many on one node may start later. Nothing is guessed: a run of unknown
length is expected to keep its slots for ever, and a run that waits for such slots has no expected start, but the name of that run.
A run that waits for a limit of hours, runs or storage has neither. A run may start earlier, in slots that borrowing runs give back
or ahead of its turn.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from math import inf
from uuid import UUID

from sqlalchemy import select

from trainwright.contracts.agent_protocol import Timers
from trainwright.contracts.parallelism_spec import Device
from trainwright_backend.core.db import Read, now
from trainwright_backend.nodes.inventory import is_online, slots_of, takes_runs
from trainwright_backend.nodes.tables import Node
from trainwright_backend.runs.queue import ExpectedStart
from trainwright_backend.runs.tables import Run
from trainwright_backend.scheduling.durations import Durations, MeasuredRates
from trainwright_backend.scheduling.fair_share import FairOrder
from trainwright_backend.scheduling.limit_gate import LimitGate
from trainwright_backend.scheduling.occupants import Occupant, RunOnNodes, runs_on_nodes
from trainwright_backend.scheduling.placement_round import waiting_heads
from trainwright_backend.teams.slot_quota import SlotBudget, slot_budgets
from trainwright_backend.teams.usage import decayed_usage

MOST_ESTIMATED = 10
"""Waiting runs of a team whose length is looked up, from the head of its queue."""


@dataclass(frozen=True)
class Waiting:
    """A run that waits for slots."""

    run_id: UUID
    name: str
    team_id: UUID
    slots: int
    seconds: float | None
    """How long it will occupy them."""


@dataclass(frozen=True)
class Holder:
    """A run that keeps slots until it is expected to end."""

    name: str
    team_id: UUID
    slots: int
    end: float
    """Seconds from now; infinite if its length is unknown."""


@dataclass(frozen=True)
class Start:
    """When slots become free."""

    seconds: float
    """From now; infinite if it is unknown."""
    after: Holder | None = None
    """The run that leaves the last of them. None: they are free, or nothing has as many."""


def forecast_starts(session: Read, team_id: UUID, timers: Timers) -> dict[UUID, ExpectedStart]:
    """When the team's waiting runs are expected to start. Runs that wait for something else than slots are left out."""
    found: dict[UUID, Start] = {}
    heads = {device: waiting_heads(session, device) for device in (Device.CUDA, Device.CPU)}
    gate = LimitGate.load(session, [run for runs in heads.values() for run in runs])
    durations = Durations(session, MeasuredRates(), most_looked_up=3 * MOST_ESTIMATED)
    for device, runs in heads.items():
        budgets = slot_budgets(session, device)
        ordered = FairOrder(runs, decayed_usage(session, device), budgets)
        queue = []
        for run in ordered:
            if gate.why_waits(run) is None:
                queue.append(run)
                budgets.setdefault(run.team_id, SlotBudget(0, 0)).awaited += run.slots
        if all(run.team_id != team_id for run in queue):
            continue
        estimated = [run for run in queue if run.team_id == team_id][:MOST_ESTIMATED]
        seconds = {run.id: durations.of(run) for run in estimated}
        waiting = [Waiting(run.id, run.name, run.team_id, run.slots, seconds.get(run.id)) for run in queue]
        limits = {team: budget.limit for team, budget in budgets.items()}
        occupants = _with_durations(session, runs_on_nodes(session, device), durations)
        starts = expected_starts(_total_slots(session, device, timers), limits, occupants, waiting)
        found |= {run.id: starts[run.id] for run in queue if run.team_id == team_id}
    return {run_id: _as_shown(start, team_id) for run_id, start in found.items()}


def expected_starts(
    total: int, limits: Mapping[UUID, int], occupants: Iterable[Occupant], queue: Iterable[Waiting]
) -> dict[UUID, Start]:
    """When each waiting run starts.

    Args:
        total: slots of all nodes that take runs.
        limits: the most slots that each team may use at once.
        occupants: in any order.
        queue: in the order in which the runs are placed. None starts before an earlier one, of any team, that waits
            for nodes, or before an earlier one of its own team.
    """
    holders = [Holder(one.name, one.team_id, one.slots, _end(0.0, one.seconds_left)) for one in occupants]
    nodes_from, team_from = Start(0.0), dict.fromkeys(limits, Start(0.0))
    found: dict[UUID, Start] = {}
    for run in queue:
        mine = [holder for holder in holders if holder.team_id == run.team_id]
        by_limit = _latest(
            _free_from(limits.get(run.team_id, 0), mine, run.slots), team_from.get(run.team_id, Start(0.0))
        )
        start = _latest(by_limit, _free_from(total, holders, run.slots), nodes_from)
        team_from[run.team_id] = found[run.run_id] = start
        if start.seconds > by_limit.seconds:
            nodes_from = start
        if start.seconds < inf:
            end = _end(start.seconds, run.seconds)
            holders.append(Holder(run.name, run.team_id, run.slots, end))
    return found


def _with_durations(session: Read, occupants: Sequence[RunOnNodes], durations: Durations) -> list[RunOnNodes]:
    """The runs on nodes; those without an estimate of their own last as long as an equal run."""
    unknown = [
        one.run_id for one in occupants if one.seconds_left is None and one.attempt_started is not None
    ]
    runs = session.scalars(select(Run).where(Run.id.in_(unknown[:MOST_ESTIMATED])))
    seconds = {run.id: durations.of(run) for run in runs}
    return [replace(one, seconds_left=seconds.get(one.run_id, one.seconds_left)) for one in occupants]


def _as_shown(start: Start, team_id: UUID) -> ExpectedStart:
    """For the members of a team, who do not see the names of other teams' runs."""
    if start.seconds < inf:
        return ExpectedStart(at=now() + timedelta(seconds=start.seconds))
    if start.after is None:
        return ExpectedStart()
    name = start.after.name if start.after.team_id == team_id else "a run of another team"
    return ExpectedStart(unknown=f"after {name}, whose length is not known")


def _latest(*starts: Start) -> Start:
    return max(starts, key=lambda start: start.seconds)


def _end(start: float, seconds: float | None) -> float:
    return inf if seconds is None else start + seconds


def _free_from(capacity: int, holders: Iterable[Holder], wanted: int) -> Start:
    """The first time from which ``wanted`` slots stay free."""
    if wanted > capacity:
        return Start(inf)
    free = capacity
    for holder in sorted(holders, key=lambda holder: holder.end, reverse=True):
        free -= holder.slots
        if free < wanted:
            return Start(holder.end, holder)
    return Start(0.0)


def _total_slots(session: Read, device: str, timers: Timers) -> int:
    nodes = session.scalars(select(Node)).all()
    usable = [node for node in nodes if takes_runs(node) and is_online(node, now(), timers)]
    return sum(len(slots_of(node)[device]) for node in usable)
