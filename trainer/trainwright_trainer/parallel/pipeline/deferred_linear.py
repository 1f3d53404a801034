"""The pass that lets the linear layers of blocks defer their weight gradients (``trainwright_trainer.deferred``).

    y = x · Wᵀ        at once  dx = dy · W        later  dW = dyᵀ · x

It cuts nothing and moves nothing; what a rank owns is said in ``stages``.

These are nearly all of a stage's weights. Embedding, norms and head stay as they are: their gradients are complete when the
backward pass is. Products and roundings are those of autograd, so that gradients are equal to the last bit.

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

from trainwright_trainer.deferred import Deferred, Work
from trainwright_trainer.fp8.modules import FP8Linear
from trainwright_trainer.model.transformer import Transformer


def defer_weight_gradients(model: Transformer, deferred: Deferred) -> None:
    """Let the linear layers of ``model``'s blocks leave their weight gradients in ``deferred``."""
    for module in model.layers.modules():
        if type(module) is nn.Linear:
            module.__class__ = DeferredLinear
        if isinstance(module, DeferredLinear | FP8Linear):
            module.deferred = deferred


class DeferredLinear(nn.Linear):
    """x (…, K) → (…, N)."""

    deferred: Deferred

    def forward(self, x: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return super().forward(x)
        dtype = _product_dtype(x)
        cast_NK = self.weight.detach().to(dtype)
        put_aside = partial(self.deferred.add, self.weight)
        y: Tensor = _Linear.apply(x.to(dtype), cast_NK, put_aside)  # type: ignore[no-untyped-call]
        return y


class _Linear(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight_NK: Tensor, put_aside: Callable[[Work], None]) -> Tensor:
        ctx.save_for_backward(x, weight_NK)
        ctx.put_aside = put_aside
        return linear(x, weight_NK)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, weight_NK = ctx.saved_tensors
        x_MK, dy_MN = x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])
        ctx.put_aside(partial(torch.mm, dy_MN.T, x_MK))
        return (dy_MN @ weight_NK).view(x.shape), None, None


def _product_dtype(x: Tensor) -> torch.dtype:
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
