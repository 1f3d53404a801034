"""When waiting runs are expected to start.

A run on nodes is expected to end at its own estimate of the time left. A waiting run is expected to last as long as an equal
run that was measured (`estimate`). Neither is expected to last longer than its maximum run time. Slots are counted as one pool
for all nodes, so a run that needs many on one node may start later. Nothing is guessed: a run of unknown length is expected to
keep its slots for ever, and a run that waits for such slots has no expected start. Nor has a run that waits for a limit of hours,
runs or storage. A run may start earlier, in slots that borrowing runs give back or ahead of its turn.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import inf
from uuid import UUID

from sqlalchemy import select

from trainwright.contracts.agent_protocol import Timers
from trainwright.contracts.parallelism_spec import Device
from trainwright_backend.core.db import Read, now
from trainwright_backend.nodes.inventory import is_online, slots_of, takes_runs
from trainwright_backend.nodes.tables import Node
from trainwright_backend.scheduling.durations import Durations, MeasuredRates
from trainwright_backend.scheduling.fair_share import FairOrder
from trainwright_backend.scheduling.limit_gate import LimitGate
from trainwright_backend.scheduling.occupants import Occupant, runs_on_nodes
from trainwright_backend.scheduling.placement_round import waiting_heads
from trainwright_backend.teams.slot_quota import SlotBudget, slot_budgets
from trainwright_backend.teams.usage import decayed_usage

MOST_ESTIMATED = 10
"""Waiting runs of a team whose length is looked up, from the head of its queue."""


@dataclass(frozen=True)
class Waiting:
    """A run that waits for slots."""

    run_id: UUID
    team_id: UUID
    slots: int
    seconds: float | None
    """How long it will occupy them."""


def forecast_starts(session: Read, team_id: UUID, timers: Timers) -> dict[UUID, datetime]:
    """When the team's waiting runs are expected to start. Runs without a known start are left out."""
    found: dict[UUID, float] = {}
    heads = {device: waiting_heads(session, device) for device in (Device.CUDA, Device.CPU)}
    gate = LimitGate.load(session, [run for runs in heads.values() for run in runs])
    durations = Durations(session, MeasuredRates(), most_looked_up=2 * MOST_ESTIMATED)
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
        waiting = [Waiting(run.id, run.team_id, run.slots, seconds.get(run.id)) for run in queue]
        limits = {team: budget.limit for team, budget in budgets.items()}
        starts = expected_starts(
            _total_slots(session, device, timers), limits, runs_on_nodes(session, device), waiting
        )
        found |= {run.id: starts[run.id] for run in queue if run.team_id == team_id and run.id in starts}
    return {run_id: now() + timedelta(seconds=start) for run_id, start in found.items()}


def expected_starts(
    total: int, limits: Mapping[UUID, int], occupants: Iterable[Occupant], queue: Iterable[Waiting]
) -> dict[UUID, float]:
    """Seconds until each waiting run starts. Runs without a known start are left out.

    Args:
        total: slots of all nodes that take runs.
        limits: the most slots that each team may use at once.
        occupants: in any order.
        queue: in the order in which the runs are placed. None starts before an earlier one, of any team, that waits
            for nodes, or before an earlier one of its own team.
    """
    held = [
        (inf if one.seconds_left is None else one.seconds_left, one.team_id, one.slots) for one in occupants
    ]
    nodes_from, team_from = 0.0, dict.fromkeys(limits, 0.0)
    found: dict[UUID, float] = {}
    for run in queue:
        limit = limits.get(run.team_id, 0)
        mine = [(end, slots) for end, team_id, slots in held if team_id == run.team_id]
        by_limit = max(_free_at(limit, mine, run.slots), team_from.get(run.team_id, 0.0))
        start = max(
            _free_at(total, [(end, slots) for end, _, slots in held], run.slots), by_limit, nodes_from
        )
        team_from[run.team_id] = start
        if start > by_limit:
            nodes_from = start
        if start < inf:
            found[run.run_id] = start
            held.append((inf if run.seconds is None else start + run.seconds, run.team_id, run.slots))
    return found


def _free_at(capacity: int, held: Iterable[tuple[float, int]], wanted: int) -> float:
    """The first time from which ``wanted`` slots stay free."""
    if wanted > capacity:
        return inf
    free = capacity
    for end, slots in sorted(held, reverse=True):
        free -= slots
        if free < wanted:
            return end
    return 0.0


def _total_slots(session: Read, device: str, timers: Timers) -> int:
    nodes = session.scalars(select(Node)).all()
    usable = [node for node in nodes if takes_runs(node) and is_online(node, now(), timers)]
    return sum(len(slots_of(node)[device]) for node in usable)
