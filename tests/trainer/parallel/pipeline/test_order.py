"""The planner orders a pipeline's work as torch's schedules do."""

from types import SimpleNamespace
from typing import Any

import pytest
from torch.distributed.pipelining import schedules

from trainwright.contracts.parallelism_spec import PipelineSchedule
from trainwright.planner.pipeline_simulation import Action, ActionKind, Pipeline, torch_action_orders

SIZES = [
    Pipeline(PipelineSchedule.ONE_F_ONE_B, ranks, 1, micro_batches)
    for ranks, micro_batches in ((2, 2), (2, 5), (4, 4), (4, 8), (4, 11), (8, 16))
]
SIZES += [
    Pipeline(schedule, ranks, chunks, micro_batches)
    for schedule in (PipelineSchedule.INTERLEAVED, PipelineSchedule.INTERLEAVED_ZERO_BUBBLE)
    for ranks, chunks, micro_batches in (
        (2, 2, 2),
        (2, 2, 4),
        (4, 2, 4),
        (4, 2, 10),
        (4, 3, 8),
        (8, 2, 16),
        (2, 4, 6),
    )
]
SIZES += [
    Pipeline(PipelineSchedule.ZBV, ranks, 2, micro_batches)
    for ranks, micro_batches in ((2, 2), (2, 3), (2, 8), (4, 4), (4, 7), (4, 12), (8, 8), (8, 20))
]
OF_RANK = {
    PipelineSchedule.INTERLEAVED: schedules.ScheduleInterleaved1F1B,
    PipelineSchedule.INTERLEAVED_ZERO_BUBBLE: schedules.ScheduleInterleavedZeroBubble,
    PipelineSchedule.ZBV: schedules.ScheduleZBVZeroBubble,
}


class RecordingStage:
    """Replaces the stage of 1F1B and records its calls. It has no neighbors to communicate with."""

    def __init__(self, stage: int, stages: int) -> None:
        self.stage_index, self.stages, self.done = stage, stages, list[Action]()

    def forward_one_chunk(self, micro_batch: int, *_: Any, **__: Any) -> None:
        self.done.append(Action(ActionKind.FORWARD, self.stage_index, micro_batch))

    def backward_one_chunk(self, micro_batch: int, **_: Any) -> None:
        self.done.append(Action(ActionKind.BACKWARD, self.stage_index, micro_batch))

    def perform_reduce_grad(self, _: int) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if not name.endswith("_ops"):
            raise AttributeError(name)
        return lambda micro_batch: []


class OneRank(schedules.Schedule1F1B):
    """One rank's 1F1B without tensors and messages."""

    def __init__(self, pipeline: Pipeline, rank: int) -> None:
        self._n_microbatches, self._num_stages = pipeline.micro_batches, pipeline.stages
        self._stage = RecordingStage(rank, pipeline.stages)
        self.scale_grads = False

    def done(self) -> list[Action]:
        self._step_microbatches()
        return self._stage.done

    def _check_inputs(self, *_: Any) -> Any:
        return [None] * self._n_microbatches, [None] * self._n_microbatches

    def _initialize_stage(self, *_: Any) -> None:
        pass

    def _maybe_compute_loss(self, *_: Any) -> None:
        pass

    def _maybe_get_loss(self, *_: Any) -> None:
        pass

    def _update_losses(self, *_: Any) -> None:
        pass


def torchs_order(pipeline: Pipeline, rank: int) -> list[Action]:
    if pipeline.schedule is PipelineSchedule.ONE_F_ONE_B:
        return OneRank(pipeline, rank).done()
    kind = OF_RANK[pipeline.schedule]
    rounds = max(1, pipeline.micro_batches // pipeline.ranks)
    known = SimpleNamespace(
        pp_group_size=pipeline.ranks,
        n_local_stages=pipeline.stages_per_rank,
        num_stages=pipeline.stages,
        _n_microbatches=pipeline.micro_batches,
        microbatches_per_round=pipeline.micro_batches // rounds,
    )
    planned = kind._calculate_single_rank_operations(known, rank)
    return [
        Action(ActionKind(item.computation_type.value), item.stage_index, item.microbatch_index)
        for item in planned
        if item is not None
    ]


@pytest.mark.parametrize(
    "pipeline",
    SIZES,
    ids=lambda size: f"{size.schedule}-{size.ranks}-{size.stages_per_rank}-{size.micro_batches}",
)
def test_orders_equal_those_of_torch(pipeline: Pipeline) -> None:
    for rank, actions in enumerate(torch_action_orders(pipeline)):
        assert list(actions) == torchs_order(pipeline, rank)
