"""Casting a matrix to FP8 for the matmuls that read it.

A matrix enters two matmuls, contracted over its columns in one and over its rows in the other. A scale may
not vary along the contracted dim, except by blocks of 128. So with one scale for the entire matrix its codes
serve both matmuls, transposed for the second; with scales by row or block it is cast twice.

    R rows   C columns

Numbers that are not finite must stay visible. But a cast clamps infinity, and amaxes are not checked during validation.
So if the current amax is not finite, the scale is NaN, and so is everything computed with it.

Rows and blocks: Dettmers et al. 2022 (arXiv 2208.07339), DeepSeek-V3 (arXiv 2412.19437), section 3.3.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from trainwright.contracts.precision_spec import ScalingKind
from trainwright_trainer.fp8.compute.cast_transpose import cast_and_transpose
from trainwright_trainer.fp8.compute.formats import E4M3, E5M2, amax_of, cast_, finite_or_inf, scale_for
from trainwright_trainer.fp8.compute.matmul import BLOCK, Operand, blocks_of
from trainwright_trainer.linear.linear_function import Cast


def gradient_format(scaling: ScalingKind) -> torch.dtype:
    """The format of output gradients. GPUs have no matmuls of E5M2 with scales by block."""
    return E4M3 if scaling is ScalingKind.BLOCK else E5M2


def cast_by_rows(x_RC: Tensor, dtype: torch.dtype, scaling: ScalingKind, delayed: Tensor) -> Cast:
    """Cast for a matmul over the columns only; ``delayed`` as in ``cast_per_tensor``, and only there."""
    if scaling is ScalingKind.TENSOR:
        rows, amax = cast_per_tensor(x_RC, dtype, delayed)
    else:
        rows, amax = _cast_finely(x_RC, dtype, scaling)
    return Cast(rows, None, amax)


def cast_both_ways(x_RC: Tensor, dtype: torch.dtype, scaling: ScalingKind, delayed: Tensor) -> Cast:
    """``cast_by_rows``, and (C, R) for a matmul over the rows."""
    if scaling is not ScalingKind.TENSOR:
        rows, amax = _cast_finely(x_RC, dtype, scaling)
        return Cast(rows, _cast_finely(x_RC.t(), dtype, scaling).operand, amax)
    amax = amax_of(x_RC)
    if x_RC.device.type != "cuda":
        rows = cast_with_amax(x_RC, dtype, delayed, amax)
        return Cast(rows, transposed(rows), amax)
    scale = _tensor_scale(dtype, delayed, amax)
    codes_RC, codes_CR = cast_and_transpose(x_RC, 1.0 / scale, dtype)
    return Cast(Operand(codes_RC, scale), Operand(codes_CR, scale), amax)


def transposed(operand: Operand) -> Operand:
    """The same matrix with its other dim contracted; for scales by tensor or by square block."""
    scale = operand.scale
    assert scale.ndim == 0 or scale.shape[0] * BLOCK == operand.codes.shape[0]
    return Operand(operand.codes.t().contiguous(), scale if scale.ndim == 0 else scale.t())


class CastResult(NamedTuple):
    """An operand, and the largest absolute value before the cast, () float32, infinite if any value was not
    finite.
    """

    operand: Operand
    amax: Tensor


def cast_per_tensor(x_RC: Tensor, dtype: torch.dtype, delayed: Tensor) -> CastResult:
    """Cast with one scale: ``delayed``, or that of the current amax if ``delayed`` is 0."""
    amax = amax_of(x_RC)
    return CastResult(cast_with_amax(x_RC, dtype, delayed, amax), amax)


def cast_with_amax(x_RC: Tensor, dtype: torch.dtype, delayed: Tensor, amax: Tensor) -> Operand:
    """``cast_per_tensor`` of a part of a matrix; ``amax`` is that of the entire matrix."""
    scale = _tensor_scale(dtype, delayed, amax)
    return Operand(_divide_and_cast(x_RC, scale, dtype), scale)


def cast_per_row(x_RC: Tensor, dtype: torch.dtype) -> CastResult:
    """Cast with one scale for each row."""
    amax_R1 = _amax(x_RC, (1,))
    scale_R1 = _or_nan(scale_for(amax_R1, dtype), amax_R1)
    codes_RC = _divide_and_cast(x_RC, scale_R1, dtype).contiguous()
    return CastResult(Operand(codes_RC, scale_R1), finite_or_inf(amax_R1.amax()))


def cast_per_block(x_RC: Tensor, dtype: torch.dtype, rows: int = 1) -> CastResult:
    """Cast with one scale for each block of ``rows`` × 128."""
    x_GrHc = blocks_of(x_RC, rows)
    amax_G1H1 = _amax(x_GrHc, (1, 3))
    scale_G1H1 = _or_nan(scale_for(amax_G1H1, dtype), amax_G1H1)
    codes_RC = _divide_and_cast(x_GrHc, scale_G1H1, dtype).flatten(2, 3).flatten(0, 1).contiguous()
    return CastResult(Operand(codes_RC, scale_G1H1.squeeze(3).squeeze(1)), finite_or_inf(amax_G1H1.amax()))


def _cast_finely(x_RC: Tensor, dtype: torch.dtype, scaling: ScalingKind) -> CastResult:
    return cast_per_row(x_RC, dtype) if scaling is ScalingKind.ROW else cast_per_block(x_RC, dtype)


def _amax(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    return x.abs().amax(dims, keepdim=True).float()


def _tensor_scale(dtype: torch.dtype, delayed: Tensor, amax: Tensor) -> Tensor:
    return _or_nan(torch.where(delayed > 0, delayed, scale_for(amax, dtype)), amax)


def _or_nan(scale: Tensor, amax: Tensor) -> Tensor:
    """``scale``, or NaN where ``amax`` is infinite. The NaN is computed: compilers do not recognise expressions as equal
    that contain a literal NaN, which equals nothing, and would cast an input again for each layer that reads it.
    """
    return torch.where(torch.isfinite(amax), scale, amax - amax)


def _divide_and_cast(x: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """Division by a power of two does not round, so the dtype of ``x`` is wide enough."""
    return cast_(x * (1.0 / scale).to(x.dtype), dtype)
