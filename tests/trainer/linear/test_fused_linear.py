"""Fused projections of one input equal those of separate layers, except for the rounding of the input's gradient."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from tests.trainer.linear.test_summed_weight_gradients import LENGTH, SPEC, TABLES, gradients, learn
from tests.trainer.model.test_attention_variants import Gated, plant
from trainwright_trainer.linear import fused_linear
from trainwright_trainer.linear.dense import DenseLinear, clear_sums, summed_weights
from trainwright_trainer.linear.weight_casts import WeightCasts
from trainwright_trainer.model import fused_projections
from trainwright_trainer.model.attention import Attention, AttentionTables
from trainwright_trainer.model.fused_projections import FusedProjections, fuse_projections
from trainwright_trainer.model.transformer import Block, ParallelBlock
from trainwright_trainer.runtime.module_replacement import replace_modules

AnyBlock = Block | ParallelBlock

EPSILON = 2.0**-8
"""The spacing of bfloat16 at 1, relative to 1."""


def blocks(kind: type[AnyBlock] = Block) -> tuple[AnyBlock, AnyBlock]:
    """A block that adds weight gradients to sums and keeps casts, and the same block with fused projections."""
    torch.manual_seed(0)
    separate = kind(SPEC, 0)
    replace_modules(separate, {nn.Linear: partial(DenseLinear, sums_gradient=True)})
    named = nn.ModuleDict({"0": copy.deepcopy(separate)})
    fuse_projections(named)
    fused = named["0"]
    assert isinstance(fused, kind)
    for block in (separate, fused):
        modules = list(block.modules())
        layers = [module for module in modules if isinstance(module, DenseLinear)]
        joined = [module for module in modules if isinstance(module, FusedProjections)]
        WeightCasts(layers, torch.bfloat16, joined).refresh()
        clear_sums(summed_weights(block))
    return separate, fused


def step(block: AnyBlock) -> dict[str, Tensor]:
    """The result of a forward pass, the input's gradient, and the sums of three micro batches."""
    torch.manual_seed(2)
    x = torch.randn(2, LENGTH, SPEC.width).bfloat16().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        out = block(x, TABLES)
    out.backward(torch.ones_like(out))
    learn(block, micro_batches=2, at_once=2)
    assert x.grad is not None
    return {"out": out.detach(), "x": x.grad} | gradients(block)


def apart(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    """Largest difference, relative to the norm of the tensor."""
    assert one.keys() == other.keys()
    return max(float((one[name] - other[name]).norm() / other[name].norm()) for name in one)


@pytest.mark.parametrize("kind", [Block, ParallelBlock])
def test_fused_projections_compute_what_separate_ones_do(kind: type[AnyBlock]) -> None:
    separate, fused = blocks(kind)
    assert list(dict(fused.named_parameters())) == list(dict(separate.named_parameters()))
    results = step(fused), step(separate)
    # An input's gradient is rounded about ten times; the layers' results are rounded as before.
    assert apart(*results) < 10 * EPSILON
    assert torch.equal(results[0]["out"], results[1]["out"])


def _first_half_twice(dy_MN: Tensor, weight_NK: Tensor) -> Tensor:
    half = weight_NK.shape[0] // 2
    return dy_MN[:, :half] @ weight_NK[:half]


@pytest.mark.parametrize("fault", ["rows are swapped", "part of the gradient is lost"])
def test_a_wrong_fused_matmul_is_detected(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    separate, fused = blocks()
    if fault == "rows are swapped":
        monkeypatch.setattr(fused_projections._FusedFeedForward, "fused_names", ("up", "gate"))
    else:
        monkeypatch.setattr(fused_linear, "input_gradient", _first_half_twice)
    assert apart(step(fused), step(separate)) > 10 * EPSILON


def test_casts_of_fused_layers_share_one_tensor_and_add_no_memory() -> None:
    _, fused = blocks()
    attention = fused.attention
    assert isinstance(attention, FusedProjections) and attention.fused_cast is not None
    memory = attention.fused_cast.untyped_storage().data_ptr()
    for layer in attention.fused_layers:
        assert layer.weight_cast is not None
        assert layer.weight_cast.untyped_storage().data_ptr() == memory
        assert torch.equal(layer.weight_cast, layer.weight.bfloat16())


def test_a_parallel_block_multiplies_its_input_in_one_matmul() -> None:
    _, fused = blocks(ParallelBlock)
    assert isinstance(fused, FusedProjections) and fused.fused_cast is not None
    assert len(fused.fused_layers) == 5
    assert not any(isinstance(part, FusedProjections) for part in (fused.attention, fused.feed_forward))


@pytest.mark.parametrize("kind", [Block, ParallelBlock])
def test_all_layers_that_a_variant_declares_are_in_the_matmul(
    kind: type[AnyBlock], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(Gated, monkeypatch.setitem)
    separate, fused = blocks(kind)
    joined = fused if kind is ParallelBlock else fused.attention
    assert isinstance(joined, FusedProjections)
    assert len(joined.fused_layers) == (6 if kind is ParallelBlock else 4)
    assert apart(step(fused), step(separate)) < 10 * EPSILON


class _Squared(Attention):
    def forward(self, x_BTD: Tensor, tables: AttentionTables) -> Tensor:
        return super().forward(x_BTD * x_BTD, tables)


def test_a_variant_that_changes_its_input_is_not_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fused_projections.ATTENTION_MODULES, "full", _Squared)
    block = Block(SPEC, 0)
    replace_modules(block, {nn.Linear: DenseLinear})
    fuse_projections(nn.ModuleDict({"0": block}))
    assert type(block.attention) is _Squared
    assert isinstance(block.feed_forward, FusedProjections)


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("at_once", [1, 3])
def test_compiled_blocks_join_matmuls_too(at_once: int) -> None:
    _, fused = blocks()
    _, compiled = blocks()
    compiled.compile(backend="aot_eager", fullgraph=True, dynamic=False)
    for block in (fused, compiled):
        learn(block, at_once=at_once)
    for name, gradient in gradients(fused).items():
        assert torch.equal(gradients(compiled)[name], gradient), name
