"""The order of teams in a placement round.

A run within its team's guaranteed share goes before all runs that borrow. Otherwise the team with the least use goes first. Use is the team's recent slot-seconds, decayed with a half-life of
`HALF_LIFE_DAYS`, plus what its present slots would add if it kept them for ever. So a team that used little goes before
one that used much, and within a round teams with the same number of slots take turns. Teams with equal use are ordered
by the places of their first runs. Priorities order the runs of one team only, so no team gets ahead of another by
calling its runs urgent.
"""

import heapq
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log
from uuid import UUID

from trainwright_backend.runs.tables import Run
from trainwright_backend.teams.slot_quota import SlotBudget
from trainwright_backend.teams.usage import HALF_LIFE_DAYS

REMEMBERED_SECONDS = HALF_LIFE_DAYS * 86_400 / log(2)
"""The decayed use of a slot that stays occupied for ever."""


@dataclass(frozen=True)
class FairOrder:
    """The waiting runs of all teams, in the order in which they are placed. Placing a run, or not, changes the
    turn of its team only."""

    runs: Sequence[Run]
    """Those of each team in their own order."""
    usage: Mapping[UUID, float]
    """Decayed slot-seconds by team."""
    budgets: Mapping[UUID, SlotBudget]

    def __iter__(self) -> Iterator[Run]:
        queues: dict[UUID, deque[Run]] = {}
        for run in self.runs:
            queues.setdefault(run.team_id, deque()).append(run)
        turns = [(self._turn(queue[0]), team_id) for team_id, queue in queues.items()]
        heapq.heapify(turns)
        while turns:
            _, team_id = heapq.heappop(turns)
            yield queues[team_id].popleft()
            if queue := queues[team_id]:
                heapq.heappush(turns, (self._turn(queue[0]), team_id))

    def _turn(self, head: Run) -> tuple[bool, float, UUID]:
        """Sorts the first runs of the teams."""
        budget = self.budgets.get(head.team_id)
        borrows = budget is None or not budget.covers(head.slots)
        return borrows, self._use(head.team_id), _place(head)

    def _use(self, team_id: UUID) -> float:
        budget = self.budgets.get(team_id)
        held = budget.used if budget is not None else 0
        return self.usage.get(team_id, 0.0) + held * REMEMBERED_SECONDS


def _place(run: Run) -> UUID:
    return run.queue_place or run.id
