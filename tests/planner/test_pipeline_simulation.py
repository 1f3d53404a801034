"""A schedule's costs match the closed forms of the papers that introduced it."""

from itertools import pairwise

import pytest

from trainwright.contracts.parallelism_spec import PipelineSchedule
from trainwright.planner.pipeline_simulation import (
    Action,
    ActionKind,
    Pipeline,
    StageSeconds,
    in_flight,
    simulate,
    torch_action_orders,
)

ALIKE = StageSeconds(1.0, 1.0, 1.0)
INTERLEAVED = PipelineSchedule.INTERLEAVED
PIPELINES = [
    Pipeline(PipelineSchedule.ONE_F_ONE_B, 1, 1, 3),
    Pipeline(PipelineSchedule.ONE_F_ONE_B, 4, 1, 9),
    Pipeline(INTERLEAVED, 4, 3, 10),
    Pipeline(PipelineSchedule.INTERLEAVED_ZERO_BUBBLE, 4, 2, 8),
    Pipeline(PipelineSchedule.ZBV, 4, 2, 5),
    Pipeline(PipelineSchedule.ZBV, 3, 2, 12),
]


def peak_held(pipeline: Pipeline, rank: int) -> int:
    """Micro batches, counted once per stage of the rank."""
    return max(
        sum(item.whole for item in moment.values())
        for moment in in_flight(torch_action_orders(pipeline)[rank])
    )


@pytest.mark.parametrize("pipeline", PIPELINES, ids=str)
def test_every_stage_runs_every_pass_once_after_its_dependencies(pipeline: Pipeline) -> None:
    timeline = simulate(pipeline, [ALIKE] * pipeline.stages)
    ends = {cell.action: cell.end for actions in timeline.ranks for cell in actions}
    starts = {cell.action: cell.start for actions in timeline.ranks for cell in actions}
    split = pipeline.schedule.is_zero_bubble
    kinds = (
        (ActionKind.FORWARD, ActionKind.INPUT, ActionKind.WEIGHT)
        if split
        else (ActionKind.FORWARD, ActionKind.BACKWARD)
    )
    back = ActionKind.INPUT if split else ActionKind.BACKWARD
    assert len(ends) == pipeline.stages * pipeline.micro_batches * len(kinds)
    assert sum(map(len, timeline.ranks)) == len(ends)
    for kind, stage, batch in ends:
        before = {
            ActionKind.FORWARD: Action(ActionKind.FORWARD, stage - 1, batch),
            back: Action(back, stage + 1, batch)
            if stage + 1 < pipeline.stages
            else Action(ActionKind.FORWARD, stage, batch),
            ActionKind.WEIGHT: Action(ActionKind.INPUT, stage, batch),
        }[kind]
        assert kind in kinds
        assert starts[kind, stage, batch] >= ends.get(before, 0.0)
    for actions in timeline.ranks:
        assert all(one.end <= next_one.start for one, next_one in pairwise(actions))


@pytest.mark.parametrize(("ranks", "micro_batches"), [(2, 2), (2, 7), (4, 4), (4, 16), (8, 32)])
def test_the_bubble_of_1f1b_is_ranks_less_one_over_micro_batches(ranks: int, micro_batches: int) -> None:
    timeline = simulate(Pipeline(PipelineSchedule.ONE_F_ONE_B, ranks, 1, micro_batches), [ALIKE] * ranks)
    bubble = (ranks - 1) / micro_batches  # ÷ the time without one
    assert timeline.end == pytest.approx(3 * micro_batches * (1 + bubble))
    assert timeline.bubble_fraction == pytest.approx(bubble / (1 + bubble))


@pytest.mark.parametrize(("ranks", "stages_per_rank", "rounds"), [(2, 2, 2), (4, 2, 3), (4, 4, 2)])
def test_interleaving_divides_the_bubble_by_the_stages_per_rank(
    ranks: int, stages_per_rank: int, rounds: int
) -> None:
    pipeline = Pipeline(INTERLEAVED, ranks, stages_per_rank, ranks * rounds)
    bubble = (ranks - 1) / (stages_per_rank * pipeline.micro_batches)
    timeline = simulate(pipeline, [ALIKE] * pipeline.stages)
    assert timeline.end == pytest.approx(3 * stages_per_rank * pipeline.micro_batches * (1 + bubble))


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_zbv_has_only_the_start_and_end_bubble_if_the_three_times_are_equal(ranks: int) -> None:
    pipeline = Pipeline(PipelineSchedule.ZBV, ranks, 2, 4 * ranks)
    timeline = simulate(pipeline, [ALIKE] * pipeline.stages)
    # The last rank starts when the first forward pass reaches it, ranks - 1 units late.
    assert timeline.end == pytest.approx(6 * pipeline.micro_batches + ranks - 1)
    single = simulate(
        Pipeline(PipelineSchedule.ONE_F_ONE_B, ranks, 1, 4 * ranks), [StageSeconds(2, 2, 2)] * ranks
    )
    assert timeline.end < single.end


def test_1f1b_holds_the_micro_batches_in_flight_on_later_ranks() -> None:
    for ranks, micro_batches in ((4, 8), (4, 4), (8, 9)):
        pipeline = Pipeline(PipelineSchedule.ONE_F_ONE_B, ranks, 1, micro_batches)
        assert [peak_held(pipeline, rank) for rank in range(ranks)] == [
            min(micro_batches, ranks - rank) for rank in range(ranks)
        ]


@pytest.mark.parametrize(("ranks", "stages_per_rank"), [(4, 2), (4, 3), (8, 2)])
def test_interleaving_holds_as_many_more_activations_as_in_the_paper(
    ranks: int, stages_per_rank: int
) -> None:
    """Rank 0 holds p·v + p - 1 activations of a stage instead of p·v: 1 + (p-1)/(p·v) (Korthikanti 2022)."""
    pipeline = Pipeline(INTERLEAVED, ranks, stages_per_rank, 4 * ranks)
    assert peak_held(pipeline, 0) / (ranks * stages_per_rank) == pytest.approx(
        1 + (ranks - 1) / (ranks * stages_per_rank)
    )


def test_zbv_gives_the_first_rank_both_ends_and_all_ranks_equal_memory() -> None:
    pipeline = Pipeline(PipelineSchedule.ZBV, 4, 2, 16)
    assert [pipeline.stages_of(rank) for rank in range(4)] == [(0, 7), (1, 6), (2, 5), (3, 4)]
    assert {peak_held(pipeline, rank) for rank in range(4)} == {8}


def test_a_slow_stage_delays_the_others() -> None:
    pipeline = Pipeline(PipelineSchedule.ONE_F_ONE_B, 4, 1, 8)
    slow = [ALIKE, ALIKE, StageSeconds(2, 2, 2), ALIKE]
    # Two forward passes before the slow stage, its own work of 8 · 6, and two backward passes of 2 after it.
    assert simulate(pipeline, slow).end >= 2 + 8 * 6 + 4 > simulate(pipeline, [ALIKE] * 4).end
