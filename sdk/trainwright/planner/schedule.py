"""The order in which the ranks of a pipeline work, and how long it takes: what a schedule looks like before it runs.

A step's micro batches go forward through all stages and back. Each rank works through a fixed list of actions, and an
action waits for the rank before it:

    F   forward pass of a stage             B   its whole backward pass
    I   gradient of the stage's input       W   gradient of its weights, which nobody waits for: it fills bubbles

    1f1b                     p stages: each rank begins with p - rank forward passes, then takes turns (Narayanan et al. 2019)
    interleaved              p·v stages, v a rank, in rounds of about p micro batches (Narayanan et al. 2021)
    interleaved_zero_bubble  the same with I and W apart (ZB1P of Qi et al. 2023)
    zbv                      2p stages laid out as a V: the first rank holds the first and the last (section 6 there)

The orders are those of ``torch.distributed.pipelining``, whose runs they describe; a test holds the two together. Messages
between ranks take no time here, and a rank computes one thing at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from trainwright.contracts.parallelism_spec import PipelineSchedule


class Kind(StrEnum):
    FORWARD = "F"
    BACKWARD = "B"
    INPUT = "I"
    WEIGHT = "W"


class Action(NamedTuple):
    """One thing that a rank does."""

    kind: Kind
    stage: int
    micro_batch: int


Orders = tuple[tuple[Action, ...], ...]
"""Actions of each rank of a pipeline, in order."""


@dataclass(frozen=True)
class Pipeline:
    """The shape of a pipeline's work."""

    schedule: PipelineSchedule
    ranks: int
    chunks: int
    """Stages that each rank holds."""

    micro_batches: int

    @property
    def stages(self) -> int:
        return self.ranks * self.chunks

    def rank_of(self, stage: int) -> int:
        """Which rank holds ``stage``: stages go round the ranks, or down and up again in a V."""
        lap, rank = divmod(stage, self.ranks)
        if self.schedule is PipelineSchedule.ZBV and lap % 2:
            return self.ranks - 1 - rank
        return rank

    def stages_of(self, rank: int) -> tuple[int, ...]:
        """The stages that ``rank`` holds, in order."""
        return tuple(stage for stage in range(self.stages) if self.rank_of(stage) == rank)


class StageSeconds(NamedTuple):
    """How long the work of one stage on one micro batch takes. Any unit serves, if it is one for all."""

    forward: float
    input: float
    weight: float

    def of(self, kind: Kind) -> float:
        times = {Kind.FORWARD: self.forward, Kind.INPUT: self.input, Kind.WEIGHT: self.weight}
        return self.input + self.weight if kind is Kind.BACKWARD else times[kind]


class Cell(NamedTuple):
    """An action in time."""

    action: Action
    start: float
    end: float


@dataclass(frozen=True)
class Timeline:
    """A step of a pipeline."""

    ranks: tuple[tuple[Cell, ...], ...]

    @property
    def end(self) -> float:
        """When the last rank is done."""
        return max(cells[-1].end for cells in self.ranks)

    @property
    def bubble_fraction(self) -> float:
        """Share of all ranks' time that nobody works in."""
        worked = sum(cell.end - cell.start for cells in self.ranks for cell in cells)
        return 1 - worked / (len(self.ranks) * self.end)


class Kept(NamedTuple):
    """Micro batches whose results a stage keeps for their backward passes, at some moment."""

    whole: int
    """Of which nothing has gone backward."""

    deferred: int
    """Whose input gradient is made, and whose weight gradient is not."""


def orders(pipeline: Pipeline) -> Orders:
    """What each rank does."""
    if pipeline.schedule is PipelineSchedule.ZBV:
        return tuple(tuple(_zbv(pipeline, rank)) for rank in range(pipeline.ranks))
    return tuple(tuple(_alternating(pipeline, rank)) for rank in range(pipeline.ranks))


def simulate(pipeline: Pipeline, seconds: Sequence[StageSeconds]) -> Timeline:
    """The step in time, each action as early as what it waits for allows; ``seconds`` are those of the stages."""
    waiting = [list(reversed(actions)) for actions in orders(pipeline)]
    done: dict[Action, float] = {}
    cells: list[list[Cell]] = [[] for _ in waiting]
    while any(waiting):
        before = len(done)
        for own, actions in zip(cells, waiting, strict=True):
            while actions and (ready := _ready(actions[-1], pipeline.stages, done)) is not None:
                action = actions.pop()
                start = max(ready, own[-1].end if own else 0.0)
                done[action] = start + seconds[action.stage].of(action.kind)
                own.append(Cell(action, start, done[action]))
        assert len(done) > before, "ranks wait for each other"
    return Timeline(tuple(tuple(own) for own in cells))


def kept(actions: Sequence[Action]) -> list[dict[int, Kept]]:
    """What a rank keeps of its stages after each of its actions, by stage."""
    whole: Counter[int] = Counter()
    deferred: Counter[int] = Counter()
    moments = []
    for kind, stage, _ in actions:
        whole[stage] += {Kind.FORWARD: 1, Kind.WEIGHT: 0}.get(kind, -1)
        deferred[stage] += {Kind.INPUT: 1, Kind.WEIGHT: -1}.get(kind, 0)
        moments.append({one: Kept(whole[one], deferred[one]) for one in whole})
    return moments


def _ready(action: Action, stages: int, done: dict[Action, float]) -> float | None:
    """When what ``action`` waits for is done; None while it is not."""
    kind, stage, micro_batch = action
    if kind is Kind.WEIGHT:
        return done.get(Action(Kind.INPUT, stage, micro_batch))
    if kind is Kind.FORWARD:
        return done.get(Action(Kind.FORWARD, stage - 1, micro_batch)) if stage else 0.0
    if stage == stages - 1:
        return done.get(Action(Kind.FORWARD, stage, micro_batch))
    return done.get(Action(kind, stage + 1, micro_batch))


def _alternating(pipeline: Pipeline, rank: int) -> Iterator[Action]:
    """Forward passes until work comes back, then one forward and one backward in turn, then what is left.

    Stages of a rank take turns after each round of micro batches, forward from its first and backward from its last.
    """
    ranks, chunks = pipeline.ranks, pipeline.chunks
    per_round = pipeline.micro_batches // max(1, pipeline.micro_batches // ranks)
    passes = chunks * pipeline.micro_batches
    split = pipeline.schedule.is_zero_bubble
    several = pipeline.schedule is not PipelineSchedule.ONE_F_ONE_B
    ahead = (2 if several and not split else 1) * (ranks - 1 - rank)
    warm = min(passes, ((chunks - 1) * per_round if several else 0) + ahead)
    forward = _turns(Kind.FORWARD, passes, per_round, [chunk * ranks + rank for chunk in range(chunks)])
    back = [chunk * ranks + rank for chunk in reversed(range(chunks))]
    backward = _turns(Kind.INPUT if split else Kind.BACKWARD, passes, per_round, back)
    weight = _turns(Kind.WEIGHT, passes, per_round, back)
    for _ in range(warm):
        yield next(forward)
    for number in range(passes):
        if number < passes - warm:
            yield next(forward)
        yield next(backward)
        if split and number >= rank:
            yield next(weight)
    if split:
        yield from weight


def _turns(kind: Kind, passes: int, per_round: int, stages: Sequence[int]) -> Iterator[Action]:
    counts: Counter[int] = Counter()
    for number in range(passes):
        stage = stages[number // per_round % len(stages)]
        yield Action(kind, stage, counts[stage])
        counts[stage] += 1


def _zbv(pipeline: Pipeline, rank: int) -> Iterator[Action]:
    """The V's order for enough micro batches to fill it, without those that are not there."""
    for action in _filled_zbv(pipeline, rank):
        if action.micro_batch < pipeline.micro_batches:
            yield action


def _filled_zbv(pipeline: Pipeline, rank: int) -> Iterator[Action]:
    ranks = pipeline.ranks
    batches = max(2 * ranks - 1, pipeline.micro_batches)
    down, up = _OneStage(rank), _OneStage(2 * ranks - 1 - rank)
    for _ in range(2 * (ranks - rank) - 1):
        yield down.forward()
    for _ in range(rank):
        yield up.forward()
        yield down.forward()
    for _ in range(ranks - rank):
        yield from (up.forward(), up.input(), up.weight())
    while up.forwards < down.forwards or down.forwards < batches:
        if down.forwards < batches:
            yield down.forward()
        yield from (down.input(), down.weight())
        yield from (up.forward(), up.input(), up.weight())
    for _ in range(rank):
        yield from (down.input(), up.input())
    for _ in range(ranks - rank):
        yield from (down.input(), down.weight())
    for one in (up, down):
        while one.weights < one.inputs:
            yield one.weight()


class _OneStage:
    """Counts what has been done on one stage."""

    def __init__(self, stage: int) -> None:
        self._stage = stage
        self.forwards = self.inputs = self.weights = 0

    def forward(self) -> Action:
        self.forwards += 1
        return Action(Kind.FORWARD, self._stage, self.forwards - 1)

    def input(self) -> Action:
        self.inputs += 1
        return Action(Kind.INPUT, self._stage, self.inputs - 1)

    def weight(self) -> Action:
        self.weights += 1
        return Action(Kind.WEIGHT, self._stage, self.weights - 1)
