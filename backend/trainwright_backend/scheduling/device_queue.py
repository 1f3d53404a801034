"""The waiting runs of one device in a round of placement, and what limits and nodes they have."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from trainwright.contracts.agent_protocol import Timers
from trainwright_backend.runs.tables import Run
from trainwright_backend.scheduling.departures import Departures
from trainwright_backend.scheduling.fair_share import FairOrder
from trainwright_backend.scheduling.fewer_nodes import waits_for_spare
from trainwright_backend.scheduling.limit_gate import LimitGate
from trainwright_backend.scheduling.moving import avoids
from trainwright_backend.scheduling.node_capacity import NodeCapacity, Reservation
from trainwright_backend.scheduling.node_pool import Match, NodePool
from trainwright_backend.scheduling.preemption import was_preempted
from trainwright_backend.scheduling.requirements import needs_of
from trainwright_backend.scheduling.waiting_reasons import in_line, waits_for
from trainwright_backend.teams.slot_quota import SlotBudget, waits_for_quota


@dataclass
class DeviceQueue:
    """The waiting runs of one device, in their order, and what they can get."""

    runs: FairOrder
    pool: NodePool
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
    at_limit: dict[UUID, Reservation] = field(default_factory=dict)
    """The first run of each team that waits for the team's limit."""
    waiting: dict[UUID, list[str]] = field(default_factory=dict)
    """Names of the runs that wait, by team, so far in this round."""
    wait_for_nodes: set[UUID] = field(default_factory=set)
    """Teams with runs that wait for nodes, so far in this round."""
    latest_start: float = 0.0
    """The latest expected start of a run that reserves nodes, in seconds."""

    def budget_of(self, run: Run) -> SlotBudget:
        return self.budgets.setdefault(run.team_id, SlotBudget(0, 0))

    def match(self, run: Run) -> Match:
        """The nodes that may get the run."""
        return self.pool.match_run(run, needs_of(run))

    def take(self, run: Run, chosen: Sequence[NodeCapacity]) -> None:
        """Count a run that is placed on nodes."""
        slots = run.slots // run.nodes
        self.budget_of(run).used += slots * len(chosen)
        self.gate.admit(run)
        self.holders.setdefault(run.team_id, []).append(run.name)
        for capacity in chosen:
            del capacity.free[run.device][:slots]
        self.pool.slots_were_taken()

    def quota_reason(self, run: Run, budget: SlotBudget) -> str:
        """What a run of a team at its limit waits for, and behind which of the team's waiting runs."""
        holders = self.holders.get(run.team_id, [])
        return waits_for_quota(run.device, run.slots, budget, holders) + self._place_in_team(run)

    def node_reason(self, run: Run, match: Match) -> str:
        """What a run that no nodes can take waits for, and behind whose runs."""
        if match.sentence is None:
            match.sentence = waits_for(match, self.pool.unavailable)
        others = self.wait_for_nodes - {run.team_id}
        self.wait_for_nodes.add(run.team_id)
        place = self._place_in_team(run) or ("; other teams' runs are ahead" if others else "")
        later = waits_for_spare(run, self.timers) if run.id in self.elastic else ""
        return match.sentence + place + later + avoids(run) + was_preempted(run)

    def _place_in_team(self, run: Run) -> str:
        mine = self.waiting.setdefault(run.team_id, [])
        mine.append(run.name)
        return in_line(len(mine), mine[-2]) if len(mine) > 1 else ""
