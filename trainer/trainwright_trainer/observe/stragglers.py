"""Stragglers: ranks that compute longer than others with the same layers.

Steps take equally long on all ranks, because ranks wait for each other. What differs is the time of their own work, outside of
collectives and of reports between two steps. A
measurement says how much longer a rank computes than the median of the others with the same layers. A rank's score is the
median of its last ten measurements, so single slow steps do not count. A rank is slow if its score is high and none of these
measurements is low: where all ranks vary much, the median alone would often be high by chance.

Ranks on the CPU of one node share its cores, and the scheduler decides which of them waits. They are compared with ranks of other
nodes only. Ranks that wait for each other inside their passes, such as those of a tensor group, are slow together. FSDP also
gathers weights in the passes, so its scores say little.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from trainwright.contracts.series import RANK_SERIES
from trainwright_trainer.observe.step_timer import Timing

WINDOW = 10
"""Measurements; there is one every ten steps."""
SLOW_FRACTION = 0.10
RECOVERED_FRACTION = 0.05


class Stragglers:
    """The scores of all ranks, and which of them are slow.

    Args:
        lines: the ranks with the same layers, one line for each stage.
        ranks_sharing_cores: number of successive ranks that compute on the same cores; they are not compared with each other.
    """

    def __init__(self, lines: Sequence[Sequence[int]], ranks_sharing_cores: int = 1) -> None:
        self._peers = {
            rank: [other for other in line if other // ranks_sharing_cores != rank // ranks_sharing_cores]
            for line in lines
            for rank in line
        }
        self._deviations: dict[int, deque[float]] = {rank: deque(maxlen=WINDOW) for rank in self._peers}
        self._slow: set[int] = set()

    def observe(self, seconds: Mapping[str, float]) -> dict[int, float]:
        """Take the times of all ranks in one step; returns the scores of the ranks with enough measurements."""
        work = {rank: _work_seconds(seconds, rank) for rank in self._peers}
        for rank, peers in self._peers.items():
            if peers:
                others = median(work[peer] for peer in peers)
                self._deviations[rank].append(work[rank] / others - 1 if others > 0 else 0.0)
        return {rank: median(found) for rank, found in self._deviations.items() if len(found) == WINDOW}

    def new_ones(self, scores: Mapping[int, float]) -> Iterator[tuple[int, float]]:
        """Ranks that have become slow, with their scores; a rank is returned again only after it has recovered."""
        for rank, score in scores.items():
            steady = min(self._deviations[rank]) >= RECOVERED_FRACTION
            if score >= SLOW_FRACTION and steady and rank not in self._slow:
                self._slow.add(rank)
                yield rank, score
            elif score < RECOVERED_FRACTION:
                self._slow.discard(rank)


def _work_seconds(seconds: Mapping[str, float], rank: int) -> float:
    return sum(
        seconds[f"{RANK_SERIES}/{rank}:{timing}"]
        for timing in Timing
        if timing not in (Timing.COLLECTIVES, Timing.OTHER)
    )
