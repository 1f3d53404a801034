"""The product of a linear layer in float32 or bfloat16, and a layer that defers its weight gradient.

M tokens   K features in   N features out
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from trainwright_trainer.distributed.axis import Axis
from trainwright_trainer.linear.deferred_weight_gradients import DeferredWeightGradients
from trainwright_trainer.linear.product import Cast, Factor, RowMatmul, Stored, linear


def output(x_MK: Tensor, weight_NK: Tensor) -> Tensor:
    """y (M, N)."""
    return x_MK @ weight_NK.t()


def input_gradient(dy_MN: Tensor, weight_NK: Tensor, out: Tensor | None = None) -> Tensor:
    """dx (M, K), in ``out`` if it is given."""
    return torch.mm(dy_MN, weight_NK, out=out)


def weight_gradient(dy_MN: Tensor, x_MK: Tensor) -> Tensor:
    """dW (N, K)."""
    return torch.mm(dy_MN.t(), x_MK)


def add_weight_gradient(total_NK: Tensor, dy_MN: Tensor, x_MK: Tensor) -> None:
    """Add the dW of some tokens to ``total_NK``; 16-bit products are rounded to 16 bits, their sum is not."""
    if dy_MN.dtype == total_NK.dtype:
        total_NK.addmm_(dy_MN.t(), x_MK)
    else:
        total_NK.add_(weight_gradient(dy_MN, x_MK))


def matmul_dtype(x: Tensor) -> torch.dtype:
    """The dtype that ``x`` is multiplied in: autocast's if it is on."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


class DenseMatmuls(NamedTuple):
    """``Matmuls`` in ``dtype``: matrices are single tensors."""

    weight: Tensor
    dtype: torch.dtype
    deferred: DeferredWeightGradients | None = None
    probe: None = None

    def leaf(self) -> Tensor:
        return (self.weight if self.deferred is None else self.weight.detach()).to(self.dtype)

    def stored(self, leaf: Tensor) -> Stored:
        return (leaf,)

    def cast_output_gradient(self, dy_MN: Tensor, axis: Axis | None) -> Cast:
        return Cast((dy_MN,))

    def output(self, stored: Stored) -> RowMatmul:
        (weight_NK,) = stored
        return lambda x: output(x[0], weight_NK)

    def input_gradient(self, stored: Stored) -> RowMatmul:
        (weight_NK,) = stored
        return lambda dy: input_gradient(dy[0], weight_NK)

    def weight_gradient(self, dy: Factor, x: Factor) -> Tensor:
        return weight_gradient(dy.matrix[0], x.matrix[0])


class DeferredLinear(nn.Linear):
    """x (…, K) → (…, N), with a weight gradient that is computed later."""

    def __init__(self, layer: nn.Linear, deferred: DeferredWeightGradients) -> None:
        super().__init__(layer.in_features, layer.out_features, bias=False, device="meta")
        self.weight = layer.weight
        self.deferred = deferred

    def forward(self, x: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return super().forward(x)
        dtype = matmul_dtype(x)
        x = x.to(dtype)
        (y,) = linear(
            x, Cast((x.detach().flatten(0, -2),)), [DenseMatmuls(self.weight, dtype, self.deferred)]
        )
        return y
