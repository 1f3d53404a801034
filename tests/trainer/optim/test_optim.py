"""Clipping and weight decay compared with values calculated by hand."""

import pytest
import torch
from torch import nn

from trainwright.contracts.optimizer_spec import OptimizerSpec
from trainwright_trainer.optim.adamw import torch_adamw
from trainwright_trainer.optim.clip import clip, global_norm


def _with_gradients(*gradients: list[float]) -> list[nn.Parameter]:
    parameters = [nn.Parameter(torch.zeros(len(gradient))) for gradient in gradients]
    for weight, gradient in zip(parameters, gradients, strict=True):
        weight.grad = torch.tensor(gradient)
    return parameters


def test_clipping_scales_all_gradients_by_one_factor() -> None:
    parameters = _with_gradients([3.0, 0.0], [4.0])
    norm = global_norm(parameters)
    assert norm.item() == pytest.approx(5.0)
    clip(parameters, norm, limit=1.0)
    assert torch.cat([weight.grad for weight in parameters]).tolist() == pytest.approx(
        [0.6, 0.0, 0.8], rel=1e-5
    )


@pytest.mark.parametrize("limit", [None, 10.0])
def test_small_gradients_are_unchanged(limit: float | None) -> None:
    parameters = _with_gradients([3.0], [4.0])
    clip(parameters, global_norm(parameters), limit)
    assert [weight.grad.item() for weight in parameters] == [3.0, 4.0]


@pytest.mark.parametrize("ratio", [1e-6, 0.5, 0.98, 0.989, 0.99, 0.991, 0.999, 1 - 1e-7, 1.0, 1 + 1e-6, 1.5])
@pytest.mark.parametrize("limit", [1e-7, 1e-3, 1.0, 1e6])
def test_clipping_is_torchs_bit_for_bit_around_the_limit(ratio: float, limit: float) -> None:
    gradients = torch.randn(2, 50, generator=torch.Generator().manual_seed(0)).double()
    gradients *= ratio * limit / gradients.norm()
    ours, torchs = (_with_gradients(*gradients.tolist()) for _ in range(2))
    clip(ours, global_norm(ours), limit)
    nn.utils.clip_grad_norm_(torchs, limit)
    for one, other in zip(ours, torchs, strict=True):
        assert torch.equal(one.grad, other.grad)


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_a_gradient_that_is_not_finite_shows_in_the_norm(bad: float) -> None:
    assert not global_norm(_with_gradients([1.0, bad], [2.0])).isfinite()


def test_matrices_decay_and_vectors_do_not() -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.RMSNorm(2))
    optimizer = torch_adamw(model, OptimizerSpec(learning_rate=0.1, weight_decay=0.5))
    before = [weight.detach().clone() for weight in model.parameters()]
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    optimizer.step()
    matrix, vector = model.parameters()
    assert torch.allclose(matrix, before[0] * (1 - 0.1 * 0.5))
    assert torch.equal(vector, before[1])
