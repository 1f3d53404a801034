"""Matmuls that add weight gradients to the step's sums, and casts made once per step, learn what autograd does."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.trainer.jobs import build_here, write_job
from trainwright.contracts.model_spec import ModelSpec
from trainwright.planner.memory import keeps_weight_casts, sums_in_matmuls
from trainwright_trainer.distributed.mesh import single_rank_mesh
from trainwright_trainer.linear.dense import DenseLinear, clear_sums, summed_weights
from trainwright_trainer.linear.weight_casts import WeightCasts
from trainwright_trainer.model.attention import AttentionTables
from trainwright_trainer.model.transformer import Block
from trainwright_trainer.observe.step_timer import StepTimer
from trainwright_trainer.parallel.data.gradient_buckets import GradientBuckets
from trainwright_trainer.process.job_file import read_job
from trainwright_trainer.runtime.module_replacement import replace_modules
from trainwright_trainer.training import materialize, model_passes

CPU = torch.device("cpu")
SPEC = ModelSpec(layers=1, width=32, heads=4, kv_heads=2)
LENGTH = 8
TABLES = AttentionTables(torch.randn(LENGTH, 8), torch.randn(LENGTH, 8))


def blocks() -> tuple[Block, Block]:
    """A block, and one with the same weights that adds to sums."""
    torch.manual_seed(0)
    plain = Block(SPEC, 0)
    summing = copy.deepcopy(plain)
    replace_modules(summing, {nn.Linear: partial(DenseLinear, sums_gradient=True)})
    return plain, summing


def learn(block: nn.Module, micro_batches: int = 3, at_once: int = 1) -> None:
    """Forward and backward passes in bfloat16, ``at_once`` forward passes before their backward passes."""
    torch.manual_seed(1)
    for _ in range(micro_batches):
        outs = []
        for _ in range(at_once):
            x = torch.randn(2, LENGTH, SPEC.width).bfloat16().requires_grad_()
            with torch.autocast("cpu", torch.bfloat16):
                outs.append(block(x, TABLES))
        for out in outs:
            out.backward(torch.randn(out.shape).to(out.dtype))


def gradients(block: nn.Module) -> dict[str, Tensor]:
    found = {}
    for name, weight in block.named_parameters():
        assert weight.grad is not None
        found[name] = weight.grad.clone()
    return found


def assert_equal(one: nn.Module, other: nn.Module) -> None:
    found = gradients(other)
    for name, gradient in gradients(one).items():
        assert torch.equal(gradient, found[name]), name


def test_sums_are_those_of_autograd_bit_for_bit() -> None:
    plain, summing = blocks()
    assert len(summed_weights(summing)) == 7
    for _ in range(2):
        plain.zero_grad()
        clear_sums(summed_weights(summing))
        for name, weight in summing.named_parameters():
            if "norm" in name:
                weight.grad = None
        learn(plain)
        learn(summing)
        assert_equal(plain, summing)


def test_without_a_sum_autograd_receives_the_gradient() -> None:
    plain, summing = blocks()
    learn(plain, micro_batches=1)
    learn(summing, micro_batches=1)
    assert_equal(plain, summing)


def test_a_sum_is_not_replaced_and_its_hooks_are_called_once_per_backward_pass() -> None:
    _, summing = blocks()
    weights = summed_weights(summing)
    clear_sums(weights)
    before = {weight: weight.grad for weight in weights}
    calls: list[Tensor] = []
    for weight in weights:
        weight.register_post_accumulate_grad_hook(calls.append)
    learn(summing, micro_batches=3)
    assert all(weight.grad is before[weight] for weight in weights)
    assert sorted(map(id, calls)) == sorted([id(weight) for weight in weights] * 3)


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("at_once", [1, 3])
def test_compiled_blocks_add_to_a_bucket_while_others_wait_for_their_backward_pass(at_once: int) -> None:
    plain, summing = blocks()
    learn(plain, at_once=at_once)
    buckets = GradientBuckets(list(summing.parameters()), single_rank_mesh(CPU).data)
    buckets.clear()
    summing.compile(backend="aot_eager", fullgraph=True, dynamic=False)
    learn(summing, at_once=at_once)
    assert_equal(plain, summing)


def test_reused_casts_equal_autocast_with_and_without_gradients() -> None:
    plain, summing = blocks()
    layers = [module for module in summing.modules() if isinstance(module, DenseLinear)]
    casts = WeightCasts(layers, torch.bfloat16)
    casts.refresh()
    learn(plain)
    learn(summing)
    assert_equal(plain, summing)
    with torch.no_grad():
        for block in (plain, summing):
            for weight in block.parameters():
                weight.add_(0.1)
        casts.refresh()
        x = torch.randn(2, LENGTH, SPEC.width)
        assert torch.equal(plain(x, TABLES), summing(x, TABLES)), "float32 matmuls read the weights"
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(plain(x, TABLES), summing(x, TABLES))


def state_after_steps(
    folder: Path, data: Path, plant: Callable[[Any], None] = lambda training: None
) -> Tensor:
    """The losses of the validations after each of three steps, and the state."""
    job_file = write_job(
        folder,
        data,
        1,
        batch={"sequence_tokens": 32, "micro_sequences": 2, "global_sequences": 8},
        precision={"kind": "bf16", "compile": "off"},
    )
    training = build_here(job_file)
    plant(training)
    losses = []
    for step in (1, 2, 3):
        training.engine.step(training.loader.micro_batches(step), 1e-2, StepTimer(CPU))
        losses.append(training.engine.mean_loss(training.loader.micro_batches(step)))
    state = [state.tensor.flatten() for state in training.engine.updater.state()]
    return torch.cat([torch.tensor(losses), *state])


def test_a_training_equals_one_by_autograd_bit_for_bit(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned = state_after_steps(tmp_path / "summed", data)

    def never_again(training: Any) -> None:
        casts = training.engine.updater.casts
        casts.refresh()
        casts.refresh = lambda: None

    stale = state_after_steps(tmp_path / "stale", data, never_again)
    assert not torch.equal(stale, learned), "injected fault: casts of the initial weights"
    with monkeypatch.context() as patch:
        patch.setattr(materialize, "keeps_weight_casts", lambda spec, layer: False)
        assert torch.equal(state_after_steps(tmp_path / "cast", data), learned)
        patch.setattr(model_passes, "sums_in_matmuls", lambda spec: False)
        assert torch.equal(state_after_steps(tmp_path / "autograd", data), learned)


RUNS: dict[str, tuple[int, dict[str, Any], bool, bool]] = {
    "several micro batches": (1, {}, True, True),
    "one micro batch": (1, {"batch": {"global_sequences": 2}}, False, False),
    "one micro batch, two ranks": (2, {"batch": {"global_sequences": 4}}, True, False),
    "float32": (1, {"precision": {"kind": "fp32"}}, False, False),
    "FP8": (1, {"precision": {"kind": "fp8"}}, False, False),
    "recomputed": (1, {"memory": {"recompute": "full"}}, True, False),
    "zero 1": (2, {"parallelism": {"zero_stage": 1}}, True, True),
    "zero 2": (2, {"parallelism": {"zero_stage": 2}}, False, False),
    "zero 2 of one rank": (1, {"parallelism": {"zero_stage": 2}}, True, True),
    "zero 3": (2, {"parallelism": {"zero_stage": 3}}, False, False),
    "zero bubble": (2, {"parallelism": {"pipeline": 2, "schedule": "zbv"}}, False, True),
    "deepspeed": (1, {"parallelism": {"engine": "deepspeed"}}, False, False),
}
"""Ranks, sections of the spec, whether matmuls add to sums, and whether casts are reused."""


@pytest.mark.parametrize("run", RUNS)
def test_which_runs_add_in_matmuls_and_reuse_casts(tmp_path: Path, data: Path, run: str) -> None:
    ranks, sections, sums, keeps = RUNS[run]
    given = {"precision": {"kind": "bf16"}, "model": {"layers": 4}} | sections
    spec = read_job(write_job(tmp_path, data, ranks, **given)).spec
    assert (sums_in_matmuls(spec), keeps_weight_casts(spec, 0)) == (sums, keeps)


def test_only_blocks_that_are_not_recomputed_reuse_casts(tmp_path: Path, data: Path) -> None:
    memory = {"recompute": "full", "recompute_layers": "1"}
    spec = read_job(write_job(tmp_path, data, 1, memory=memory, precision={"kind": "bf16"})).spec
    assert [keeps_weight_casts(spec, layer) for layer in (0, 1)] == [True, False]
