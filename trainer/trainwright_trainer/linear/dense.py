"""The matmul of a linear layer in float32 or bfloat16, and the layer that can choose when its weight is cast, and when and
where its weight gradient is computed.

M tokens   K features in   N features out
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainwright_trainer.distributed.axis import Axis
from trainwright_trainer.linear.add_weight_gradient import add_weight_gradient
from trainwright_trainer.linear.deferred_weight_gradients import DeferredWeightGradients
from trainwright_trainer.linear.linear_function import Cast, Factor, RowMatmul, Stored, linear


def output(x_MK: Tensor, weight_NK: Tensor) -> Tensor:
    """y (M, N)."""
    return x_MK @ weight_NK.t()


def input_gradient(dy_MN: Tensor, weight_NK: Tensor, out: Tensor | None = None) -> Tensor:
    """dx (M, K), in ``out`` if it is given."""
    return torch.mm(dy_MN, weight_NK, out=out)


def weight_gradient(dy_MN: Tensor, x_MK: Tensor) -> Tensor:
    """dW (N, K)."""
    return torch.mm(dy_MN.t(), x_MK)


def matmul_dtype(x: Tensor) -> torch.dtype:
    """The dtype that ``x`` is multiplied in: autocast's if it is on."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


class DenseMatmuls(NamedTuple):
    """``Matmuls`` in ``dtype``: matrices are single tensors."""

    weight: Tensor
    dtype: torch.dtype
    deferred: DeferredWeightGradients | None = None
    cast: Tensor | None = None
    """The cast of the weight to ``dtype``, if it is stored."""

    total: Tensor | None = None
    probe: None = None

    def leaf(self) -> Tensor:
        return self.weight if self.deferred is None else self.weight.detach()

    def stored(self, leaf: Tensor) -> Stored:
        return (leaf.to(self.dtype) if self.cast is None else self.cast,)

    def cast_output_gradient(self, dy_MN: Tensor, axis: Axis | None) -> Cast:
        return Cast((dy_MN,))

    def output(self, stored: Stored) -> RowMatmul:
        (weight_NK,) = stored
        return lambda x: output(x[0], weight_NK)

    def input_gradient(self, stored: Stored) -> RowMatmul:
        (weight_NK,) = stored
        return lambda dy: input_gradient(dy[0], weight_NK)

    def weight_gradient(self, dy: Factor, x: Factor) -> Tensor:
        return weight_gradient(dy.matrix[0], x.matrix[0]).to(self.weight.dtype)

    def add_weight_gradient(self, total: Tensor, dy: Factor, x: Factor) -> None:
        add_weight_gradient(total, dy.matrix[0], x.matrix[0])


class DenseLinear(nn.Linear):
    """x (…, K) → (…, N). Without gradients it computes what the layer that it replaces does."""

    def __init__(
        self, layer: nn.Linear, deferred: DeferredWeightGradients | None = None, sums_gradient: bool = False
    ) -> None:
        """
        Args:
            deferred: takes the weight gradient, which is computed later.
            sums_gradient: the backward pass adds the weight gradient to the weight's ``grad``, if there is one.
        """
        super().__init__(layer.in_features, layer.out_features, bias=False, device="meta")
        self.weight = layer.weight
        self.deferred = deferred
        self.sums_gradient = sums_gradient
        self.weight_cast: Tensor | None = None
        """The weight in the dtype of the matmuls, if it is kept between updates (``weight_casts``). On data ranks that
        do not update the weight, only this is up to date."""

    def forward(self, x: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            cast = self._cast_in(matmul_dtype(x))
            return functional.linear(x, self.weight if cast is None else cast)
        x = x.to(matmul_dtype(x))
        (y,) = linear(x, Cast((x.detach().flatten(0, -2),)), [self.matmuls(x.dtype)])
        return y

    def matmuls(self, dtype: torch.dtype) -> DenseMatmuls:
        """The matmuls in ``dtype``."""
        total = self.weight.grad if self.sums_gradient else None
        return DenseMatmuls(self.weight, dtype, self.deferred, self._cast_in(dtype), total)

    def _cast_in(self, dtype: torch.dtype) -> Tensor | None:
        """The stored cast, if matmuls in ``dtype`` can read it."""
        return self.weight_cast if self.weight_cast is not None and self.weight_cast.dtype == dtype else None


def summed_weights(model: nn.Module) -> set[Tensor]:
    """The weights whose layers add to their ``grad``."""
    layers = (module for module in model.modules() if isinstance(module, DenseLinear))
    return {layer.weight for layer in layers if layer.sums_gradient}


def clear_sums(weights: Collection[Tensor]) -> None:
    """Set the gradients of ``weights`` to zero, and allocate missing ones."""
    kept = [weight.grad for weight in weights if weight.grad is not None]
    if kept:
        torch._foreach_zero_(kept)
    for weight in weights:
        if weight.grad is None:
            weight.grad = torch.zeros_like(weight)
