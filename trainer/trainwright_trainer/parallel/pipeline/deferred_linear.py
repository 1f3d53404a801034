"""The pass that lets the linear layers of blocks defer their weight gradients (``runtime.deferred_weight_gradients``).

    y = x · Wᵀ        at once  dx = dy · W        later  dW = dyᵀ · x

It shards nothing and moves nothing; ``stages`` says what a rank owns.

These are nearly all of a stage's weights. Embedding, norms and head do not change: their gradients are
complete when the backward pass is. Matmuls and rounding are those of autograd, so gradients are bitwise
equal.

    M tokens   K features in   N features out
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

from trainwright_trainer.fp8.compute.layers import FP8Linear
from trainwright_trainer.model.transformer import Transformer
from trainwright_trainer.runtime.deferred_weight_gradients import DeferredWeightGradients, GradientFunction
from trainwright_trainer.runtime.module_replacement import replace_modules


def defer_weight_gradients(model: Transformer, deferred: DeferredWeightGradients) -> None:
    """Let the linear layers of ``model``'s blocks add their weight gradients to ``deferred``."""
    replace_modules(model.layers, {nn.Linear: partial(DeferredLinear, deferred=deferred)})
    for module in model.layers.modules():
        if isinstance(module, FP8Linear):
            module.deferred = deferred


class DeferredLinear(nn.Linear):
    """x (…, K) → (…, N)."""

    def __init__(self, layer: nn.Linear, deferred: DeferredWeightGradients) -> None:
        super().__init__(layer.in_features, layer.out_features, bias=False, device="meta")
        self.weight = layer.weight
        self.deferred = deferred

    def forward(self, x: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return super().forward(x)
        dtype = _matmul_dtype(x)
        cast_NK = self.weight.detach().to(dtype)
        defer = partial(self.deferred.add, self.weight)
        y: Tensor = DeferredLinearFunction.apply(x.to(dtype), cast_NK, defer)
        return y


class DeferredLinearFunction(Function):
    """A linear layer whose backward pass computes the input gradient and defers the weight gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight_NK: Tensor, defer: Callable[[GradientFunction], None]) -> Tensor:
        ctx.save_for_backward(x, weight_NK)
        ctx.defer = defer
        return linear(x, weight_NK)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, weight_NK = ctx.saved_tensors
        x_MK, dy_MN = x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])
        ctx.defer(partial(torch.mm, dy_MN.T, x_MK))
        return (dy_MN @ weight_NK).view(x.shape), None, None


def _matmul_dtype(x: Tensor) -> torch.dtype:
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
