"""The three products of a linear layer, each of any rows of its tokens: of numbers, or in FP8 with one scale a tensor.

    y = x · Wᵀ      dx = dy · W      dW = dyᵀ · x

``chunks`` gives them rows as they come. Roundings are those of the layer's own passes: a tensor is cast with the amax of all
its rows on all ranks, whichever of them are multiplied first.

    M tokens   K features in   N features out
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

import torch
from torch import Tensor, nn

from trainwright.contracts.precision_spec import ScalingKind
from trainwright_trainer.deferred import Deferred
from trainwright_trainer.fp8.formats import E4M3, E5M2, amax_of
from trainwright_trainer.fp8.linear import cast_weight, turn_weight
from trainwright_trainer.fp8.modules import FP8Linear
from trainwright_trainer.fp8.products import Operand, by_amax, multiply, turned
from trainwright_trainer.mesh import Axis
from trainwright_trainer.parallel.tensor.codes import GatheredCast

ByRows = Callable[[Operand], Tensor]
"""Multiplies rows, each by itself."""


class LayerProducts(Protocol):
    """Those of one layer, in one kind of numbers."""

    def leaves(self) -> tuple[Tensor, Tensor | None]:
        """What autograd gives gradients to: the weight, and in FP8 the probe."""

    def read(self, x_MK: Tensor) -> Operand:
        """The input, or this rank's part of one that is gathered."""

    def read_gradient(self, dy_MN: Tensor, axis: Axis | None) -> tuple[Operand, Tensor | None]:
        """The output's gradient, or this rank's part of one that is cut over ``axis``; and its amax for the probe."""

    def forward(self, weight_NK: Tensor) -> ByRows:
        """Makes y of x."""

    def backward(self, weight_NK: Tensor) -> ByRows:
        """Makes dx of dy."""

    def weight_gradient(self, dy: Operand, x: Operand) -> Tensor | None:
        """dW; None where it is put aside."""


def products_of(layer: nn.Module, dtype: torch.dtype) -> LayerProducts:
    """Those of ``layer``; where it is none in FP8, in ``dtype``."""
    return Codes(layer) if isinstance(layer, FP8Linear) else Numbers(layer, dtype)


class Numbers:
    """Operands are numbers with a scale of 1."""

    def __init__(self, layer: nn.Module, dtype: torch.dtype) -> None:
        self._layer, self._dtype = layer, dtype
        self._deferred: Deferred | None = getattr(layer, "deferred", None)

    def leaves(self) -> tuple[Tensor, None]:
        weight = self._weight()
        return (weight if self._deferred is None else weight.detach()).to(self._dtype), None

    def read(self, x_MK: Tensor) -> Operand:
        return Operand(x_MK, x_MK.new_ones(()))

    def read_gradient(self, dy_MN: Tensor, axis: Axis | None) -> tuple[Operand, None]:
        return self.read(dy_MN), None

    def forward(self, weight_NK: Tensor) -> ByRows:
        return lambda x: x.codes @ weight_NK.t()

    def backward(self, weight_NK: Tensor) -> ByRows:
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


class Codes:
    """Operands are FP8; what is no operand is bfloat16, but for the gradient of the weight."""

    def __init__(self, layer: FP8Linear) -> None:
        self._layer, self._handle = layer, layer.held.handle

    def leaves(self) -> tuple[Tensor, Tensor]:
        weight = self._handle if self._layer.deferred is None else self._handle.detach()
        return weight, self._layer.output_gradient_probe

    def read(self, x_MK: Tensor) -> Operand:
        cast = self._layer.input_cast
        return cast.cast_part(x_MK).operand if isinstance(cast, GatheredCast) else cast(x_MK).now

    def read_gradient(self, dy_MN: Tensor, axis: Axis | None) -> tuple[Operand, Tensor]:
        amax = amax_of(dy_MN) if axis is None else axis.max(amax_of(dy_MN))
        return by_amax(dy_MN, E5M2, self._layer.output_gradient_scale, amax), amax

    def forward(self, weight_NK: Tensor) -> ByRows:
        operand = cast_weight(*self._held(), ScalingKind.TENSOR)
        return partial(multiply, b=operand, out=torch.bfloat16, fast_accumulation=True)

    def backward(self, weight_NK: Tensor) -> ByRows:
        return partial(multiply, b=turn_weight(*self._held(), ScalingKind.TENSOR), out=torch.bfloat16)

    def weight_gradient(self, dy: Operand, x: Operand) -> Tensor | None:
        gradient = partial(multiply, turned(dy), turned(x), self._handle.dtype)
        if self._layer.deferred is None:
            return gradient()
        self._layer.deferred.add(self._handle, gradient)
        return None

    def _held(self) -> tuple[Tensor, Tensor, Tensor | None]:
        held = self._layer.held
        return held.codes, held.scale, None if held.codes.dtype is E4M3 else held.cast_scale
