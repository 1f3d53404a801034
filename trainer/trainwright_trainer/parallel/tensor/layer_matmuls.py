"""The three matmuls of a linear layer, each for any rows of its tokens: in a dense dtype, or in FP8 with one
scale per tensor.

    y = x · Wᵀ      dx = dy · W      dW = dyᵀ · x

``chunked_collectives`` passes rows as they arrive. Rounding is that of the layer's own passes: a tensor is
cast with the amax of all its rows on all ranks, whichever rows are multiplied first.

    M tokens   K features in   N features out
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

import torch
from torch import Tensor, nn

from trainwright.contracts.precision_spec import ScalingKind
from trainwright_trainer.distributed.axis import Axis
from trainwright_trainer.fp8.compute.formats import E5M2, amax_of
from trainwright_trainer.fp8.compute.layers import FP8Linear
from trainwright_trainer.fp8.compute.linear import cast_transposed_weight, cast_weight
from trainwright_trainer.fp8.compute.matmul import Operand, cast_with_amax, scaled_matmul, transposed
from trainwright_trainer.parallel.tensor.fp8_gather import GatheringInputCast
from trainwright_trainer.runtime.deferred_weight_gradients import DeferredWeightGradients

RowMatmul = Callable[[Operand], Tensor]
"""Multiplies rows independently of each other."""


class LayerMatmuls(Protocol):
    """The matmuls of one layer in one number format."""

    def leaves(self) -> tuple[Tensor, Tensor | None]:
        """The leaves that autograd gives gradients to: the weight, and in FP8 the probe."""

    def cast_input(self, x_MK: Tensor) -> Operand:
        """Cast the input, or this rank's part of an input that is gathered."""

    def cast_gradient(self, dy_MN: Tensor, axis: Axis | None) -> tuple[Operand, Tensor | None]:
        """Cast the output's gradient, or this rank's part of it if sharded over ``axis``; also returns its
        amax for the probe.
        """

    def forward(self, weight_NK: Tensor) -> RowMatmul:
        """Computes y from x."""

    def backward(self, weight_NK: Tensor) -> RowMatmul:
        """Computes dx from dy."""

    def weight_gradient(self, dy: Operand, x: Operand) -> Tensor | None:
        """dW; None if it is deferred."""


def matmuls_of(layer: nn.Module, dtype: torch.dtype) -> LayerMatmuls:
    """The matmuls of ``layer``; in ``dtype`` unless it is an FP8 layer."""
    return FP8Matmuls(layer) if isinstance(layer, FP8Linear) else DenseMatmuls(layer, dtype)


class DenseMatmuls:
    """Operands are plain tensors with a scale of 1."""

    def __init__(self, layer: nn.Module, dtype: torch.dtype) -> None:
        self._layer, self._dtype = layer, dtype
        self._deferred: DeferredWeightGradients | None = getattr(layer, "deferred", None)

    def leaves(self) -> tuple[Tensor, None]:
        weight = self._weight()
        return (weight if self._deferred is None else weight.detach()).to(self._dtype), None

    def cast_input(self, x_MK: Tensor) -> Operand:
        return Operand(x_MK, x_MK.new_ones(()))

    def cast_gradient(self, dy_MN: Tensor, axis: Axis | None) -> tuple[Operand, None]:
        return self.cast_input(dy_MN), None

    def forward(self, weight_NK: Tensor) -> RowMatmul:
        return lambda x: x.codes @ weight_NK.t()

    def backward(self, weight_NK: Tensor) -> RowMatmul:
        return lambda dy: dy.codes @ weight_NK

    def weight_gradient(self, dy: Operand, x: Operand) -> Tensor | None:
        gradient = partial(torch.mm, dy.codes.t(), x.codes)
        if self._deferred is None:
            return gradient()
        self._deferred.add(self._weight(), gradient)
        return None

    def _weight(self) -> Tensor:
        weight = self._layer.weight
        assert isinstance(weight, Tensor)
        return weight


class FP8Matmuls:
    """Operands are FP8; everything else is bfloat16, except the gradient of the weight."""

    def __init__(self, layer: FP8Linear) -> None:
        self._layer, self._handle = layer, layer.stored_weight.handle

    def leaves(self) -> tuple[Tensor, Tensor]:
        weight = self._handle if self._layer.deferred is None else self._handle.detach()
        return weight, self._layer.output_gradient_probe

    def cast_input(self, x_MK: Tensor) -> Operand:
        cast = self._layer.input_cast
        return (
            cast.cast_local(x_MK).operand if isinstance(cast, GatheringInputCast) else cast(x_MK).for_output
        )

    def cast_gradient(self, dy_MN: Tensor, axis: Axis | None) -> tuple[Operand, Tensor]:
        amax = amax_of(dy_MN) if axis is None else axis.all_reduce_max(amax_of(dy_MN))
        return cast_with_amax(dy_MN, E5M2, self._layer.output_gradient_scale, amax), amax

    def forward(self, weight_NK: Tensor) -> RowMatmul:
        codes, scale, cast_scale, _ = self._layer.stored_weight.stored()
        operand = cast_weight(codes, scale, cast_scale, ScalingKind.TENSOR)
        return partial(scaled_matmul, b=operand, out=torch.bfloat16, fast_accumulation=True)

    def backward(self, weight_NK: Tensor) -> RowMatmul:
        codes, scale, cast_scale, codes_KN = self._layer.stored_weight.stored()
        if codes_KN is not None:
            operand = Operand(codes_KN, scale)
        else:
            operand = cast_transposed_weight(codes, scale, cast_scale, ScalingKind.TENSOR)
        return partial(scaled_matmul, b=operand, out=torch.bfloat16)

    def weight_gradient(self, dy: Operand, x: Operand) -> Tensor | None:
        gradient = partial(scaled_matmul, transposed(dy), transposed(x), self._handle.dtype)
        if self._layer.deferred is None:
            return gradient()
        self._layer.deferred.add(self._handle, gradient)
        return None
