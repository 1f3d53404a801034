"""Forward and backward passes of stages:
what runs how often, what is recomputed, compiled or stored, and how long phases take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config
from torch import Tensor, nn

from tests.trainer.jobs import events
from tests.trainer.pipeline_trainings import (
    INTERLEAVED,
    MODEL,
    ONE_F_ONE_B,
    ROUNDS,
    ZBV,
    Whole,
    assert_equal,
    run,
    staged,
    started_timer,
    whole_models,
)
from tests.trainer.ranks import on_mesh
from trainwright.contracts.job_spec import output_folder
from trainwright.contracts.parallelism_spec import Degrees
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.linear.linear_function import LinearFunction
from trainwright_trainer.model import loss as loss_module
from trainwright_trainer.model.transformer import Block
from trainwright_trainer.parallel.pipeline.torch_schedules import TrainingStage
from trainwright_trainer.process.job_file import read_job
from trainwright_trainer.training import model_passes
from trainwright_trainer.training.build import build


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return whole_models(data, tmp_path_factory)


def _count_backward_passes(mesh: Mesh, job_file: Path, torch_splits: bool) -> dict[str, int]:
    """How often functions of the graph ran backward on this rank, under torch's split or ours."""
    counts = {"linear": 0, "loss": 0, "block": 0}

    def counting(function: type[torch.autograd.Function], name: str) -> None:
        backward = function.backward

        def counted(*arguments: Any) -> Any:
            counts[name] += 1
            return backward(*arguments)

        function.backward = staticmethod(counted)

    counting(_Matmul if torch_splits else LinearFunction, "linear")
    counting(loss_module.LossAndGradients, "loss")
    counting(_Identity, "block")
    forward = Block.forward
    Block.forward = lambda self, x, *tables: _Identity.apply(forward(self, x, *tables))
    if torch_splits:
        _split_by_torch()
    output_folder(job_file).mkdir(exist_ok=True)
    training = build(read_job(job_file), job_file, mesh)
    training.engine.step(training.loader.micro_batches(1), 1e-3, started_timer())
    return counts


class _Matmul(torch.autograd.Function):
    """A linear layer as one function, like FP8 layers."""

    @staticmethod
    def forward(ctx: Any, x_BTK: Tensor, weight_NK: Tensor) -> Tensor:
        ctx.save_for_backward(x_BTK, weight_NK)
        return x_BTK @ weight_NK.T

    @staticmethod
    def backward(ctx: Any, dy_BTN: Tensor) -> tuple[Tensor, Tensor]:
        x_BTK, weight_NK = ctx.saved_tensors
        return dy_BTN @ weight_NK, dy_BTN.flatten(0, 1).T @ x_BTK.flatten(0, 1)


class _Identity(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


def _split_by_torch() -> None:
    """Let torch find the two halves of a backward pass in the graph."""
    model_passes.defer_weight_gradients = lambda model, deferred: None
    nn.Linear.forward = lambda self, x: _Matmul.apply(x, self.weight)
    made = TrainingStage.__init__

    def without_builder(self: TrainingStage, *arguments: Any, **named: Any) -> None:
        made(self, *arguments, **named)
        self.dw_builder = None

    TrainingStage.__init__ = without_builder


@pytest.mark.slow(target="layouts")
def test_zero_bubble_runs_each_backward_function_once_per_micro_batch(tmp_path: Path, data: Path) -> None:
    """Rank 0 has stages of 2 and 3 layers and the loss, in 2 chunks of tokens; rank 1 has stages of 1 and 2
    layers.

    Negative control: torch's own split runs linear layers twice, for the input's gradient and for the
    weight's.
    """
    two = Degrees(pipeline=2)
    memory = {
        "memory": {"loss_chunk_tokens": 128},
        "batch": {"sequence_tokens": 256, "micro_sequences": 1, "global_sequences": ROUNDS},
    }
    layout = {"schedule": "zbv", "stages": (2, 1, 2, 3)}
    ours = on_mesh(two, _count_backward_passes, staged(tmp_path / "ours", data, two, layout, **memory), False)
    assert ours == [
        {"linear": 5 * 7 * ROUNDS, "loss": ROUNDS, "block": 5 * ROUNDS},
        {"linear": 3 * 7 * ROUNDS, "loss": 0, "block": 3 * ROUNDS},
    ]
    theirs = on_mesh(two, _count_backward_passes, staged(tmp_path / "theirs", data, two, layout), True)
    assert theirs[1]["linear"] > 3 * 7 * ROUNDS


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize(
    "layout",
    [
        pytest.param(ONE_F_ONE_B, id="1f1b"),
        pytest.param(INTERLEAVED, id="interleaved"),
    ],
)
def test_recomputed_layers_in_any_stage_change_no_bit(
    tmp_path: Path, data: Path, whole: Whole, layout: dict[str, Any]
) -> None:
    like, learned = whole(precision={"kind": "bf16"})
    two = Degrees(pipeline=2)
    memory = {"recompute": "full", "recompute_layers": "0-1,5"}
    job_file = staged(tmp_path, data, two, layout, memory=memory, precision={"kind": "bf16"})
    assert_equal(job_file, run(two, [job_file])[0][1], like, learned)


@pytest.mark.slow(target="layouts")
def test_compiled_blocks_learn_the_same_in_stages_as_in_one_process(
    tmp_path: Path, data: Path, whole: Whole
) -> None:
    sections = {"precision": {"kind": "bf16", "compile": "on"}, "model": MODEL | {"layers": 2}}
    like, learned = whole(**sections)
    two = Degrees(pipeline=2)
    job_file = staged(tmp_path, data, two, ONE_F_ONE_B, **sections)
    assert_equal(job_file, run(two, [job_file])[0][1], like, learned)


@pytest.mark.slow(target="layouts")
def test_phases_sum_to_the_step_and_separate_waiting_from_work(tmp_path: Path, data: Path) -> None:
    two = Degrees(pipeline=2)
    job_file = staged(tmp_path, data, two, ZBV)
    run(two, [job_file])
    for event in events(job_file, "step"):
        phases = {name: value for name, value in event["values"].items() if name.endswith("_seconds")}
        phases.pop("eta_seconds")
        assert sum(phases.values()) == pytest.approx(event["values"]["seconds"])
        between = phases.pop("other_seconds")
        assert min(phases.values()) > 0 and between >= 0


def _most_buffers(mesh: Mesh, job_file: Path) -> list[int]:
    """Micro batches with input buffers in a stage of this rank: the peak, and the number after a step."""
    output_folder(job_file).mkdir(exist_ok=True)
    training = build(read_job(job_file), job_file, mesh)
    rooms: list[int] = []
    stages: set[TrainingStage] = set()
    forward = TrainingStage.forward_one_chunk

    def held(stage: TrainingStage) -> int:
        infos = [info for infos in stage.args_recv_info.values() for info in infos]
        return sum(info.buffer is not None and info.buffer.numel() > 0 for info in infos)

    def counted(stage: TrainingStage, *arguments: Any, **named: Any) -> Any:
        stages.add(stage)
        rooms.append(held(stage))
        return forward(stage, *arguments, **named)

    TrainingStage.forward_one_chunk = counted
    training.engine.step(training.loader.micro_batches(1), 1e-3, started_timer())
    (stage,) = stages
    return [max(rooms), held(stage)]


@pytest.mark.slow(target="layouts")
def test_a_stage_has_input_buffers_only_for_micro_batches_in_flight(tmp_path: Path, data: Path) -> None:
    """Under 1F1B, stage i of p has p - i in flight, regardless of the number of micro batches."""
    four = Degrees(pipeline=4)
    rooms = on_mesh(four, _most_buffers, staged(tmp_path, data, four, ONE_F_ONE_B))
    assert rooms == [[0, 0], [3, 0], [2, 0], [1, 0]]
