"""A deferred weight gradient equals the immediate one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from tests.trainer.fp8.compute.test_conversion import build, converted, tokens, towards
from tests.trainer.jobs import TINY
from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.precision_spec import FP8Spec, ScalingKind
from trainwright_trainer.fp8.compute.linear import FP8Linear
from trainwright_trainer.linear.deferred_weight_gradients import DeferredWeightGradients
from trainwright_trainer.linear.dense import DenseLinear
from trainwright_trainer.model.init import initialize
from trainwright_trainer.model.transformer import Transformer
from trainwright_trainer.parallel.pipeline.deferred_linear import defer_weight_gradients

SPEC = ModelSpec.model_validate(TINY["model"] | {"tied_embeddings": False})
TOKENS = torch.arange(64).reshape(2, 32)

bf16 = partial(torch.autocast, "cpu", dtype=torch.bfloat16)


def model() -> Transformer:
    made = Transformer(SPEC, 257, 32)
    initialize(made, SPEC, seed=3)
    return made


def backward(made: Transformer, context: Callable[[], AbstractContextManager[object]]) -> None:
    with context():
        loss = made(TOKENS).float().logsumexp(-1).mean()
    loss.backward()


def gradients(made: nn.Module) -> dict[str, Tensor | None]:
    return {
        name: None if weight.grad is None else weight.grad.clone() for name, weight in made.named_parameters()
    }


@pytest.mark.parametrize("context", [nullcontext, bf16], ids=["fp32", "bf16"])
def test_deferred_gradients_are_those_of_autograd_bit_for_bit_over_two_rounds(
    context: Callable[[], AbstractContextManager[object]],
) -> None:
    plain, split, deferred = model(), model(), DeferredWeightGradients()
    defer_weight_gradients(split, deferred)
    for _ in range(2):
        backward(plain, context)
        backward(split, context)
        deferred.take()()
    for name, gradient in gradients(plain).items():
        assert torch.equal(gradient, gradients(split)[name]), name


def test_weight_gradients_are_computed_on_request_for_each_backward_pass() -> None:
    split, deferred = model(), DeferredWeightGradients()
    defer_weight_gradients(split, deferred)
    backward(split, nullcontext)
    first = deferred.take()
    backward(split, nullcontext)
    second = deferred.take()
    missing = {name for name, gradient in gradients(split).items() if gradient is None}
    assert missing == {name for name in gradients(split) if "attention." in name or "feed_forward." in name}
    second()
    half = gradients(split)
    first()
    assert all(torch.equal(gradients(split)[name], 2 * half[name]) for name in missing)
    first()
    assert all(torch.equal(gradients(split)[name], 2 * half[name]) for name in missing), (
        "each is returned once"
    )


def test_autograd_never_reports_a_deferred_gradient() -> None:
    split, deferred = model(), DeferredWeightGradients()
    defer_weight_gradients(split, deferred)
    calls: list[str] = []
    for name, weight in split.named_parameters():
        weight.register_post_accumulate_grad_hook(lambda _, name=name: calls.append(name))
    backward(split, nullcontext)
    deferred.take()()
    assert set(calls) == {
        name for name in gradients(split) if "attention." not in name and "feed_forward." not in name
    }


def test_without_gradients_a_deferred_layer_is_a_plain_one() -> None:
    plain, split, deferred = model(), model(), DeferredWeightGradients()
    defer_weight_gradients(split, deferred)
    assert any(isinstance(module, DenseLinear) for module in split.modules())
    with torch.no_grad():
        assert torch.equal(plain(TOKENS), split(TOKENS))


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("scaling", list(ScalingKind))
def test_fp8_layers_defer_the_same_matmul_and_record_amaxes_immediately(scaling: ScalingKind) -> None:
    spec = FP8Spec(scaling=scaling)
    plain, split = (converted(build(tied=False), spec)[0] for _ in range(2))
    deferred = DeferredWeightGradients()
    defer_weight_gradients(split, deferred)
    for made in (plain, split):
        out = made(tokens())
        out.backward(towards(out))
    layers = [name for name, module in plain.named_modules() if isinstance(module, FP8Linear)]
    assert layers
    for name in layers:
        one, other = plain.get_submodule(name), split.get_submodule(name)
        assert isinstance(one, FP8Linear) and isinstance(other, FP8Linear)
        assert torch.equal(one.output_gradient_probe.grad, other.output_gradient_probe.grad), name
        assert other.stored_weight.handle.grad is None, name
    deferred.take()()
    for name, gradient in gradients(plain).items():
        assert torch.equal(gradient, gradients(split)[name]), name
