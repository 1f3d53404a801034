"""Faults in what stages send and when they reduce: each changes the losses or ends the step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from tests.trainer.pipeline_trainings import (
    INTERLEAVED,
    ONE_F_ONE_B,
    TIED,
    ZBV,
    Fault,
    Whole,
    assert_close,
    run,
    staged,
    whole_models,
)
from trainwright.contracts.parallelism_spec import Degrees
from trainwright_trainer.optim.replicated_updater import ReplicatedUpdater
from trainwright_trainer.parallel.data.gradient_buckets import GradientBuckets
from trainwright_trainer.parallel.pipeline.pipelined_forward_backward import PipelineForwardBackward
from trainwright_trainer.parallel.pipeline.torch_schedules import TrainingStage


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return whole_models(data, tmp_path_factory)


def _skip_the_sum_of_tied_gradients() -> None:
    PipelineForwardBackward.reduce_tied_gradient = lambda self: (
        self._updater.mark_ready(["embedding.weight"]) if self._tied else None
    )


def _reduce_in_hooks() -> None:
    """Reduce when autograd reports a weight's gradient, as without a pipeline."""
    GradientBuckets.clear = _clear_and_reduce_in_hooks
    ReplicatedUpdater.mark_ready = lambda self, names: None


_clear = GradientBuckets.clear


def _clear_and_reduce_in_hooks(self: GradientBuckets) -> None:
    _clear(self)
    self.reduce_when_ready()


def _reduce_with_input_gradients() -> None:
    """Reduce when the last input gradient of a stage is computed, without waiting for weight gradients."""
    backward, complete = TrainingStage.backward_one_chunk, GradientBuckets.mark_ready

    def count_now(self: TrainingStage, chunk: int, loss: Any, full: bool, last: bool = False) -> None:
        backward(self, chunk, loss, full, last)
        if not full:
            self._count_micro_batch()

    def send_at_once(self: GradientBuckets, weights: Any) -> None:
        complete(self, weights)
        for work in self._works:
            work.wait()

    TrainingStage.backward_one_chunk = (
        lambda self, chunk, loss=None, full_backward=True, last_backward=False: count_now(
            self, chunk, loss, full_backward, last_backward
        )
    )
    TrainingStage.backward_weight_one_chunk = lambda self, chunk, last_backward=False: self.dw_runner.pop(
        chunk
    )()
    GradientBuckets.mark_ready = send_at_once


def _drop_an_activation() -> None:
    """The activation of the third micro batch is never sent, and no rank waits for it."""
    send, receive = TrainingStage.get_fwd_send_ops, TrainingStage.get_fwd_recv_ops

    def dropped(self: TrainingStage, chunk: int) -> Any:
        return [] if chunk == 2 else send(self, chunk)

    def not_waited_for(self: TrainingStage, chunk: int) -> Any:
        operations = receive(self, chunk)
        for operation in operations if chunk == 2 else ():
            operation.tensor.detach().zero_()
        return [] if chunk == 2 else operations

    TrainingStage.get_fwd_send_ops = dropped
    TrainingStage.get_fwd_recv_ops = not_waited_for


def _misroute_gradients() -> None:
    """Each gradient sent backward is that of the previous micro batch."""
    send = TrainingStage.get_bwd_send_ops
    before: dict[int, Tensor] = {}

    def late(self: TrainingStage, chunk: int) -> Any:
        operations = send(self, chunk)
        for operation in operations:
            before[chunk] = operation.tensor
            operation.tensor = before.get(chunk - 1, operation.tensor)
        return operations

    TrainingStage.get_bwd_send_ops = late


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize(
    ("layout", "replicas", "sections", "fault"),
    [
        (ONE_F_ONE_B, 1, TIED, _skip_the_sum_of_tied_gradients),
        (ZBV, 2, {}, _reduce_with_input_gradients),
        (ONE_F_ONE_B, 1, {}, _drop_an_activation),
        (INTERLEAVED, 1, {}, _misroute_gradients),
    ],
    ids=["tied gradients not summed", "reduced too early", "activation dropped", "gradient misrouted"],
)
def test_an_injected_fault_changes_the_losses(
    tmp_path: Path,
    data: Path,
    whole: Whole,
    layout: dict[str, Any],
    replicas: int,
    sections: dict[str, Any],
    fault: Fault,
) -> None:
    degrees = Degrees(pipeline=2, replicas=replicas)
    job_file = staged(tmp_path / "faulty", data, degrees, layout, **sections)
    run(degrees, [job_file], fault)
    with pytest.raises(AssertionError):
        assert_close(job_file, whole(**(sections or {"precision": {"kind": "fp32"}}))[0])


@pytest.mark.slow(target="layouts")
def test_hooks_miss_weights_under_a_zero_bubble_schedule(tmp_path: Path, data: Path) -> None:
    """Negative control: autograd reports only norms and embeddings,
    and the step ends without the other gradients."""
    degrees = Degrees(pipeline=2, replicas=2)
    with pytest.raises(AssertionError, match="a weight got no gradient"):
        run(degrees, [staged(tmp_path, data, degrees, ZBV)], _reduce_in_hooks)
