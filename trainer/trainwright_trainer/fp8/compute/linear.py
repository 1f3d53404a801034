"""A linear layer with all three matmuls in FP8 (FP8-LM, section 2; formats of Micikevicius et al. 2022).

    y  = x · Wᵀ      E4M3 · E4M3, contracted over K, with fast accumulation
    dx = dy · W      E5M2 · E4M3, contracted over N
    dW = dyᵀ · x     E5M2 · E4M3, contracted over M

    M tokens   K features in   N features out

Each operand is cast for its matmul. With one scale per tensor the codes of one matmul serve the next,
transposed; scales by row or block differ from matmul to matmul, and so do the codes.

Only x is saved for the backward pass, as the dW matmul needs it, one byte per element. W is cast again from
its stored codes, unless its operands are kept (``Weight.operands``). Everything is a function of its inputs:
the amax of dy is returned as the gradient of ``probe``, a scalar that takes no part in the computation.
``linear.product`` says when each matmul is computed.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from trainwright.contracts.precision_spec import ScalingKind
from trainwright_trainer.distributed.axis import Axis
from trainwright_trainer.fp8.compute.formats import E4M3, E5M2, amax_of, cast_, widen
from trainwright_trainer.fp8.compute.matmul import (
    Operand,
    cast_both_ways,
    cast_for_first_dim,
    cast_for_last_dim,
    cast_per_block,
    cast_per_row,
    cast_with_amax,
    scaled_matmul,
    transposed,
)
from trainwright_trainer.fp8.compute.weight import StoredMatrix, Weight
from trainwright_trainer.linear.deferred_weight_gradients import DeferredWeightGradients
from trainwright_trainer.linear.product import Cast, Factor, RowMatmul, Stored


def cast_input(
    x: Tensor, scaling: ScalingKind, delayed: Tensor, learning: bool, transpose_now: bool = False
) -> Cast:
    """Cast an input (…, K) once for all layers that read it.

    Args:
        delayed: () float32, its scale; 0 means that of the current amax.
        learning: whether there will be a backward pass.
        transpose_now: on a GPU, save the codes transposed. It costs no pass (``cast_transpose``), while the backward pass
            could only transpose codes that it saved, or, compiled, compute the input again. For scaling by tensor.
    """
    x_MK = x.detach().flatten(0, -2)
    if scaling is ScalingKind.TENSOR and learning and transpose_now and x.device.type == "cuda":
        return Cast(*cast_both_ways(x_MK, E4M3, delayed))
    rows, amax = cast_for_last_dim(x_MK, E4M3, scaling, delayed)
    if scaling is ScalingKind.TENSOR or not learning:
        return Cast(rows, None, amax)
    return Cast(rows, cast_for_first_dim(x_MK, E4M3, scaling), amax)


class FP8Matmuls(NamedTuple):
    """``Matmuls`` in FP8: a matrix is an ``Operand``. y and dx are bfloat16, dW has the dtype of the weight's handle."""

    stored_weight: Weight
    scaling: ScalingKind
    output_gradient_scale: Tensor
    """() float32: the scale of dy; 0 means that of the current amax."""

    probe: Tensor
    deferred: DeferredWeightGradients | None

    @property
    def weight(self) -> Tensor:
        return self.stored_weight.handle

    def leaf(self) -> Tensor:
        return self.weight if self.deferred is None else self.weight.detach()

    def stored(self, leaf: Tensor) -> Stored:
        return self.stored_weight.stored()

    def cast_output_gradient(self, dy_MN: Tensor, axis: Axis | None) -> Cast:
        if axis is not None:
            amax = axis.all_reduce_max(amax_of(dy_MN))
            return Cast(cast_with_amax(dy_MN, E5M2, self.output_gradient_scale, amax), None, amax)
        if self.scaling is ScalingKind.TENSOR:
            return Cast(*cast_both_ways(dy_MN, E5M2, self.output_gradient_scale))
        rows, amax = cast_for_last_dim(dy_MN, E5M2, self.scaling, self.output_gradient_scale)
        return Cast(rows, cast_for_first_dim(dy_MN, E5M2, self.scaling), amax)

    def output(self, stored: Stored) -> RowMatmul:
        codes_NK, scale, cast_scale, _ = StoredMatrix(*stored)
        weight_NK = cast_weight(codes_NK, scale, cast_scale, self.scaling)
        return partial(_multiply, weight_NK, fast_accumulation=True)

    def input_gradient(self, stored: Stored) -> RowMatmul:
        codes_NK, scale, cast_scale, codes_KN = StoredMatrix(*stored)
        if codes_KN is not None:
            return partial(_multiply, Operand(codes_KN, scale))
        return partial(_multiply, cast_transposed_weight(codes_NK, scale, cast_scale, self.scaling))

    def weight_gradient(self, dy: Factor, x: Factor) -> Tensor:
        return scaled_matmul(_over_tokens(dy), _over_tokens(x), self.weight.dtype)


def _multiply(weight: Operand, rows: tuple[Tensor, ...], fast_accumulation: bool = False) -> Tensor:
    return scaled_matmul(Operand(*rows), weight, torch.bfloat16, fast_accumulation)


def _over_tokens(factor: Factor) -> Operand:
    operand = Operand(*factor.matrix)
    return operand if factor.transposed else transposed(operand)


def cast_weight(codes_NK: Tensor, scale: Tensor, cast_scale: Tensor | None, scaling: ScalingKind) -> Operand:
    """W for y. Its scale needs no pass over the weight: the optimizer keeps ``cast_scale``."""
    if cast_scale is None:
        assert scaling is ScalingKind.TENSOR and codes_NK.dtype is E4M3
        return Operand(codes_NK, scale)
    if scaling is ScalingKind.TENSOR:
        return Operand(cast_(codes_NK.float() * (scale / cast_scale), E4M3), cast_scale)
    real_NK = widen(codes_NK, torch.float32) * scale
    return (
        cast_per_row(real_NK, E4M3) if scaling is ScalingKind.ROW else cast_per_block(real_NK, E4M3, rows=128)
    ).operand


def cast_transposed_weight(
    codes_NK: Tensor, scale: Tensor, cast_scale: Tensor | None, scaling: ScalingKind
) -> Operand:
    """Wᵀ for dx: scales by tensor or square block allow a transpose, rows are cast again along the other dim."""
    if scaling is ScalingKind.ROW:
        return cast_for_first_dim(widen(codes_NK, torch.float32) * scale, E4M3, scaling)
    return transposed(cast_weight(codes_NK, scale, cast_scale, scaling))
