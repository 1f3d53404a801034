"""Several matmuls of one input, computed as one: the stored casts of their weights are the rows of one matrix.

    y₁ … yₙ = x · (W₁ … Wₙ)ᵀ     one matmul instead of n
    dx      = (dy₁ … dyₙ) · W     one matmul with sums in float32, instead of n matmuls and additions of their results
    dWᵢ     = dyᵢᵀ · x            one for each layer as before, so parameters, their gradients and hooks stay separate

The parameters keep their own memory and names; only the casts that matmuls read share a tensor (``weight_casts``).

    M tokens   K features in   N features out of all layers
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from trainwright_trainer.linear.dense import DenseLinear, input_gradient, matmul_dtype, output
from trainwright_trainer.linear.linear_function import Cast, Factor, RowMatmul, linear


class HasFusedLayers(Protocol):
    """A module with several layers that read one input."""

    fused_cast: Tensor | None
    """(N, K): the casts of their weights, in the order of ``fused_layers``; None if none are kept."""

    @property
    def fused_layers(self) -> list[DenseLinear]:
        """The layers that read it."""


def multiply_at_once(x: Tensor, module: HasFusedLayers) -> list[Tensor]:
    """x (…, K) → (…, Nᵢ) of each of the module's ``fused_layers``."""
    layers, cast_NK, dtype = module.fused_layers, module.fused_cast, matmul_dtype(x)
    if cast_NK is None or cast_NK.dtype != dtype or not torch.is_grad_enabled():
        return [layer(x) for layer in layers]
    x = x.to(dtype)
    sizes = [layer.out_features for layer in layers]
    matmuls = [layer.matmuls(dtype) for layer in layers]
    return linear(x, Cast((x.detach().flatten(0, -2),)), matmuls, _FusedMatmuls(cast_NK, sizes))


class _FusedMatmuls(NamedTuple):
    """All tokens are here (``Tokens``); the fused cast multiplies them."""

    cast: Tensor
    """(N, K)."""

    sizes: list[int]
    output_axis: None = None

    def forward(self, x: Cast, matmuls: Sequence[RowMatmul]) -> tuple[Factor, list[Tensor]]:
        return x.factor, list(output(x.rows[0], self.cast).split(self.sizes, 1))

    def backward(
        self, dys: Sequence[Cast], matmuls: Sequence[RowMatmul]
    ) -> tuple[list[Factor], Callable[[], Tensor]]:
        dy_MN = torch.cat([dy.rows[0] for dy in dys], 1)
        dx_MK = input_gradient(dy_MN, self.cast)
        return [Factor((part,)) for part in dy_MN.split(self.sizes, 1)], lambda: dx_MK
