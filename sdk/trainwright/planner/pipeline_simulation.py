"""Pipeline schedules: the order in which the ranks work, and how long a step takes.

The micro batches of a step go forward through all stages and back. Each rank executes a fixed list of actions, and an action
waits for the previous rank:

    F   forward pass of a stage             B   its entire backward pass
    I   gradient of the stage's input       W   gradient of its weights, for which no rank waits, so it fills bubbles

    1f1b                     p stages: each rank starts with p - rank forward passes, then alternates (Narayanan et al. 2019)
    interleaved              p·v stages, v per rank, in rounds of about p micro batches (Narayanan et al. 2021)
    interleaved_zero_bubble  the same with separate I and W (ZB1P of Qi et al. 2023)
    zbv                      2p stages in a V: the first rank has the first and the last stage (section 6 there)

The orders are those of ``torch.distributed.pipelining``, whose runs they describe; a test compares the two.
Messages between ranks take no time here, and a rank computes one thing at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from trainwright.contracts.parallelism_spec import PipelineSchedule


class ActionKind(StrEnum):
    FORWARD = "F"
    BACKWARD = "B"
    INPUT = "I"
    WEIGHT = "W"


class Action(NamedTuple):
    """One action of a rank."""

    kind: ActionKind
    stage: int
    micro_batch: int


ActionOrders = tuple[tuple[Action, ...], ...]
"""Actions of each rank of a pipeline, in order."""


@dataclass(frozen=True)
class Pipeline:
    """Dimensions and schedule of a pipeline."""

    schedule: PipelineSchedule
    ranks: int
    stages_per_rank: int
    """Stages on each rank."""

    micro_batches: int

    @property
    def stages(self) -> int:
        return self.ranks * self.stages_per_rank

    def rank_of(self, stage: int) -> int:
        """The rank of ``stage``: stages are assigned round-robin, or down and up again in a V."""
        lap, rank = divmod(stage, self.ranks)
        if self.schedule is PipelineSchedule.ZBV and lap % 2:
            return self.ranks - 1 - rank
        return rank

    def stages_of(self, rank: int) -> tuple[int, ...]:
        """The stages on ``rank``, in order."""
        return tuple(stage for stage in range(self.stages) if self.rank_of(stage) == rank)


class StageSeconds(NamedTuple):
    """Time of one stage for one micro batch, in any unit that all stages share."""

    forward: float
    input: float
    weight: float

    def of(self, kind: ActionKind) -> float:
        times = {
            ActionKind.FORWARD: self.forward,
            ActionKind.INPUT: self.input,
            ActionKind.WEIGHT: self.weight,
        }
        return self.input + self.weight if kind is ActionKind.BACKWARD else times[kind]


class TimedAction(NamedTuple):
    """An action with its start and end time."""

    action: Action
    start: float
    end: float


@dataclass(frozen=True)
class Timeline:
    """A step of a pipeline."""

    ranks: tuple[tuple[TimedAction, ...], ...]

    @property
    def end(self) -> float:
        """When the last rank finishes."""
        return max(actions[-1].end for actions in self.ranks)

    @property
    def bubble_fraction(self) -> float:
        """Fraction of the ranks' time in which they are idle."""
        worked = sum(cell.end - cell.start for actions in self.ranks for cell in actions)
        return 1 - worked / (len(self.ranks) * self.end)


class InFlight(NamedTuple):
    """Micro batches whose activations a stage stores at some moment."""

    whole: int
    """Micro batches before their backward pass."""

    deferred: int
    """Micro batches between input gradient and weight gradient."""


def torch_action_orders(pipeline: Pipeline) -> ActionOrders:
    """The actions of each rank, in order."""
    if pipeline.schedule is PipelineSchedule.ZBV:
        return tuple(tuple(_zbv(pipeline, rank)) for rank in range(pipeline.ranks))
    return tuple(tuple(_one_f_one_b(pipeline, rank)) for rank in range(pipeline.ranks))


def simulate(pipeline: Pipeline, seconds: Sequence[StageSeconds]) -> Timeline:
    """Simulate a step, with each action as early as possible; ``seconds`` are the times of the stages."""
    waiting = [list(reversed(actions)) for actions in torch_action_orders(pipeline)]
    done: dict[Action, float] = {}
    timed: list[list[TimedAction]] = [[] for _ in waiting]
    while any(waiting):
        before = len(done)
        for own, actions in zip(timed, waiting, strict=True):
            while actions and (ready := _ready(actions[-1], pipeline.stages, done)) is not None:
                action = actions.pop()
                start = max(ready, own[-1].end if own else 0.0)
                done[action] = start + seconds[action.stage].of(action.kind)
                own.append(TimedAction(action, start, done[action]))
        assert len(done) > before, "ranks wait for each other"
    return Timeline(tuple(tuple(own) for own in timed))


def in_flight(actions: Sequence[Action]) -> list[dict[int, InFlight]]:
    """Micro batches in flight after each action of a rank, by stage."""
    whole: Counter[int] = Counter()
    deferred: Counter[int] = Counter()
    moments = []
    for kind, stage, _ in actions:
        whole[stage] += {ActionKind.FORWARD: 1, ActionKind.WEIGHT: 0}.get(kind, -1)
        deferred[stage] += {ActionKind.INPUT: 1, ActionKind.WEIGHT: -1}.get(kind, 0)
        moments.append({item: InFlight(whole[item], deferred[item]) for item in whole})
    return moments


def _ready(action: Action, stages: int, done: dict[Action, float]) -> float | None:
    """When the dependency of ``action`` is done; None if it is not done yet."""
    kind, stage, micro_batch = action
    if kind is ActionKind.WEIGHT:
        return done.get(Action(ActionKind.INPUT, stage, micro_batch))
    if kind is ActionKind.FORWARD:
        return done.get(Action(ActionKind.FORWARD, stage - 1, micro_batch)) if stage else 0.0
    if stage == stages - 1:
        return done.get(Action(ActionKind.FORWARD, stage, micro_batch))
    return done.get(Action(kind, stage + 1, micro_batch))


def _one_f_one_b(pipeline: Pipeline, rank: int) -> Iterator[Action]:
    """Warm-up with forward passes, then alternating forward and backward passes, then the remaining backward passes.

    The stages of a rank alternate after each round of micro batches, forward from the first and backward from the last.
    """
    ranks, stages_per_rank = pipeline.ranks, pipeline.stages_per_rank
    per_round = pipeline.micro_batches // max(1, pipeline.micro_batches // ranks)
    passes = stages_per_rank * pipeline.micro_batches
    split = pipeline.schedule.is_zero_bubble
    several = pipeline.schedule is not PipelineSchedule.ONE_F_ONE_B
    ahead = (2 if several and not split else 1) * (ranks - 1 - rank)
    warm = min(passes, ((stages_per_rank - 1) * per_round if several else 0) + ahead)
    forward = _in_rounds(
        ActionKind.FORWARD, passes, per_round, [chunk * ranks + rank for chunk in range(stages_per_rank)]
    )
    back = [chunk * ranks + rank for chunk in reversed(range(stages_per_rank))]
    backward = _in_rounds(ActionKind.INPUT if split else ActionKind.BACKWARD, passes, per_round, back)
    weight = _in_rounds(ActionKind.WEIGHT, passes, per_round, back)
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


def _in_rounds(kind: ActionKind, passes: int, per_round: int, stages: Sequence[int]) -> Iterator[Action]:
    counts: Counter[int] = Counter()
    for number in range(passes):
        stage = stages[number // per_round % len(stages)]
        yield Action(kind, stage, counts[stage])
        counts[stage] += 1


def _zbv(pipeline: Pipeline, rank: int) -> Iterator[Action]:
    """The order for enough micro batches to fill the V, without those that do not exist."""
    for action in _filled_zbv(pipeline, rank):
        if action.micro_batch < pipeline.micro_batches:
            yield action


def _filled_zbv(pipeline: Pipeline, rank: int) -> Iterator[Action]:
    ranks = pipeline.ranks
    batches = max(2 * ranks - 1, pipeline.micro_batches)
    down, up = _StageCounter(rank), _StageCounter(2 * ranks - 1 - rank)
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
    for item in (up, down):
        while item.weights < item.inputs:
            yield item.weight()


class _StageCounter:
    """Counts the actions of one stage."""

    def __init__(self, stage: int) -> None:
        self._stage = stage
        self.forwards = self.inputs = self.weights = 0

    def forward(self) -> Action:
        self.forwards += 1
        return Action(ActionKind.FORWARD, self._stage, self.forwards - 1)

    def input(self) -> Action:
        self.inputs += 1
        return Action(ActionKind.INPUT, self._stage, self.inputs - 1)

    def weight(self) -> Action:
        self.weights += 1
        return Action(ActionKind.WEIGHT, self._stage, self.weights - 1)
