"""FP8 matmuls: how a matrix is cast for one, and the one function that multiplies.

A matmul contracts one dim. Scales may vary along the other dims, and by block along the contracted one:

    tensor   a ()          one scale for the entire matrix
    row      a (R, 1)      one for each row
    block    a (R, C/128)  one for each 1 × 128 along the contracted dim, or (R/128, C/128) for each 128 × 128

So a matrix that enters two matmuls, contracted along its rows in one and along its columns in the other, is
cast twice unless one scale serves both. An ``Operand`` always has the contracted dim last and contiguous, and
``scaled_matmul`` computes a · bᵀ, the layout (row-major times column-major) that tensor cores need.

    R rows   C contracted

Numbers that are not finite must not be lost, but a cast clamps infinity, and amaxes are not checked during
validation: so if the current amax is not finite, the scale is NaN, and so is everything computed with it.

Rows and blocks: Dettmers et al. 2022 (arXiv 2208.07339), DeepSeek-V3 (arXiv 2412.19437), section 3.3. On a
GPU torch's scaled matmuls multiply the codes. CPUs have no fast ones: there the numbers are
multiplied in a wider format that represents them exactly, and what GPUs refuse is refused too.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from trainwright.contracts.precision_spec import ScalingKind
from trainwright_trainer.fp8.compute.cast_transpose import cast_and_transpose
from trainwright_trainer.fp8.compute.formats import E5M2, amax_of, cast_, finite_or_inf, scale_for, widen
from trainwright_trainer.runtime.errors import BadJobError

BLOCK = 128
"""Edge of a block, in elements."""

_TILE = 16
"""Rows and contracted dims of FP8 matrices are multiples of this on GPUs."""


class Operand(NamedTuple):
    """A matrix in FP8: ``codes · scale``, where scales are broadcast over their rows or blocks."""

    codes: Tensor
    """(R, C), row-major."""

    scale: Tensor
    """(), (R, 1), (R, C/128) or (R/128, C/128), float32."""


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


class BothWays(NamedTuple):
    """A matrix cast for two products with one scale: by rows, and transposed."""

    by_rows: Operand
    transposed: Operand
    amax: Tensor


def cast_both_ways(x_RC: Tensor, dtype: torch.dtype, delayed: Tensor) -> BothWays:
    """``cast_per_tensor``, and the same codes transposed."""
    amax = amax_of(x_RC)
    if x_RC.device.type != "cuda":
        operand = cast_with_amax(x_RC, dtype, delayed, amax)
        return BothWays(operand, transposed(operand), amax)
    scale = _tensor_scale(dtype, delayed, amax)
    codes_RC, codes_CR = cast_and_transpose(x_RC, 1.0 / scale, dtype)
    return BothWays(Operand(codes_RC, scale), Operand(codes_CR, scale), amax)


def cast_per_row(x_RC: Tensor, dtype: torch.dtype) -> CastResult:
    """Cast with one scale for each row."""
    amax_R1 = _amax(x_RC, (1,))
    scale_R1 = _or_nan(scale_for(amax_R1, dtype), amax_R1)
    codes_RC = _divide_and_cast(x_RC, scale_R1, dtype).contiguous()
    return CastResult(Operand(codes_RC, scale_R1), finite_or_inf(amax_R1.amax()))


def cast_per_block(x_RC: Tensor, dtype: torch.dtype, rows: int = 1) -> CastResult:
    """Cast with one scale for each block of ``rows`` × 128."""
    x_GrHc = _blocks(x_RC, rows)
    amax_G1H1 = _amax(x_GrHc, (1, 3))
    scale_G1H1 = _or_nan(scale_for(amax_G1H1, dtype), amax_G1H1)
    codes_RC = _divide_and_cast(x_GrHc, scale_G1H1, dtype).flatten(2, 3).flatten(0, 1).contiguous()
    return CastResult(Operand(codes_RC, scale_G1H1.squeeze(3).squeeze(1)), finite_or_inf(amax_G1H1.amax()))


def cast_for_last_dim(x_RC: Tensor, dtype: torch.dtype, scaling: ScalingKind, delayed: Tensor) -> CastResult:
    """Cast for a matmul that contracts the last dim; only scaling by tensor can use a ``delayed`` scale."""
    if scaling is ScalingKind.TENSOR:
        return cast_per_tensor(x_RC, dtype, delayed)
    return cast_per_row(x_RC, dtype) if scaling is ScalingKind.ROW else cast_per_block(x_RC, dtype)


def cast_for_first_dim(x_RC: Tensor, dtype: torch.dtype, scaling: ScalingKind) -> Operand:
    """Cast for a matmul that contracts the first dim: codes (C, R). With scaling by tensor, use
    ``transposed`` instead.
    """
    assert scaling is not ScalingKind.TENSOR
    x_CR = x_RC.t()
    return (cast_per_row(x_CR, dtype) if scaling is ScalingKind.ROW else cast_per_block(x_CR, dtype)).operand


def transposed(operand: Operand) -> Operand:
    """The same matrix with its other dim contracted; for scales by tensor or by square block."""
    scale = operand.scale
    assert scale.ndim == 0 or scale.shape[0] * BLOCK == operand.codes.shape[0]
    return Operand(operand.codes.t().contiguous(), scale if scale.ndim == 0 else scale.t())


def scaled_matmul(a: Operand, b: Operand, out: torch.dtype, fast_accumulation: bool = False) -> Tensor:
    """a · bᵀ, accumulated in float32.

    Args:
        a: (M, C); only this operand may be E5M2, a restriction of row-wise kernels.
        b: (N, C).
        out: bfloat16 or float32. On GPUs all results but those with scales by tensor are rounded to bfloat16
            first: not every GPU supports float32 results.
        fast_accumulation: let tensor cores accumulate in fewer bits than float32; for forward matmuls.

    Returns:
        (M, N).
    """
    _check_layout(a.codes, b.codes)
    if a.codes.device.type == "cpu":
        return _multiply_exactly(a, b, out)
    if a.scale.ndim == 0:
        return _scaled_mm(a.codes, b.codes, a.scale, b.scale, out, fast_accumulation)
    if a.scale.shape[1] == 1 and b.scale.shape == (b.codes.shape[0], 1):
        return _scaled_mm(a.codes, b.codes, a.scale, b.scale.t(), torch.bfloat16, fast_accumulation).to(out)
    blocks: Tensor = _multiply_blocks(a.codes, b.codes, a.scale, b.scale)
    return blocks.to(out)


def dequantize(operand: Operand, dtype: torch.dtype = torch.float32) -> Tensor:
    """The real numbers. Scales are powers of two, so bfloat16 represents them as exactly as float32."""
    codes, scale = widen(operand.codes, dtype), operand.scale.to(dtype)
    if scale.ndim == 0 or scale.shape == (codes.shape[0], 1):
        return codes.mul_(scale)
    blocks = _blocks(codes, codes.shape[0] // scale.shape[0])
    blocks.mul_(scale[:, None, :, None])
    return codes


def check_device(scaling: ScalingKind, device: torch.device) -> None:
    """Refuse a scaling that ``device`` has no matmuls for.

    Raises:
        BadJobError: names the field and the reason.
    """
    if device.type != "cuda":
        return
    capability = torch.cuda.get_device_capability(device)
    if capability < (8, 9):
        raise BadJobError(
            f"precision.kind: fp8 needs a GPU of compute capability 8.9 or newer, this one has {_dotted(capability)}"
        )
    if scaling is ScalingKind.BLOCK:
        _check_blocks(capability)


def _check_blocks(capability: tuple[int, int]) -> None:
    """cuBLAS multiplies blocks of 128 with float32 scales since 12.9, on Hopper GPUs only."""
    toolkit = tuple(map(int, (torch.version.cuda or "0.0").split(".")[:2]))
    if capability[0] != 9:
        reason = f"compute capability 9.0, this GPU has {_dotted(capability)}"
    elif toolkit < (12, 9):
        reason = f"torch built for CUDA 12.9 or newer, this one is for {torch.version.cuda}"
    elif not hasattr(F, "scaled_mm"):
        reason = f"torch.nn.functional.scaled_mm, which torch {torch.__version__} lacks"
    else:
        return
    raise BadJobError(f"precision.fp8.scaling: block needs {reason}: use tensor or row")


def _dotted(capability: tuple[int, int]) -> str:
    return ".".join(map(str, capability))


def _blocks(x_RC: Tensor, rows: int) -> Tensor:
    blocks: Tensor = torch.unflatten(torch.unflatten(x_RC, 1, (-1, BLOCK)), 0, (-1, rows))
    return blocks


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


def _check_layout(a_codes: Tensor, b_codes: Tensor) -> None:
    """The layout that tensor cores require. A CPU would multiply anything."""
    for codes in (a_codes, b_codes):
        assert codes.ndim == 2 and codes.stride() == (codes.shape[1], 1), (
            "the contracted dim must be contiguous"
        )
    assert a_codes.shape[1] == b_codes.shape[1], "both operands have the same contracted dim"
    assert a_codes.shape[1] % _TILE == 0 and b_codes.shape[0] % _TILE == 0, "dims must be multiples of 16"
    assert b_codes.dtype is not E5M2, "only the first operand may be E5M2"


def _scaled_mm(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, out: torch.dtype, fast: bool
) -> Tensor:
    product: Tensor = torch._scaled_mm(a, b.t(), scale_a, scale_b, out_dtype=out, use_fast_accum=fast)
    return product


def _multiply_exactly(a: Operand, b: Operand, out: torch.dtype) -> Tensor:
    if a.scale.ndim == 0:  # both scales at once
        return widen(a.codes, out) @ dequantize(Operand(b.codes, a.scale * b.scale), out).t()
    return dequantize(a, out) @ dequantize(b, out).t()


def _by_columns(scale: Tensor) -> Tensor:
    return scale.t().contiguous().t()


def _call_cublas(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor) -> Tensor:
    """Codes (M, C) and (N, C) with scales by block → (M, N) bfloat16.

    cuBLAS reads scales of 1 × 128 column by column, and pads the contracted dim of 128 × 128 to four blocks.
    """
    square = scale_b.shape[0] != b.shape[0]
    blocks_b = F.ScalingType.BlockWise128x128 if square else F.ScalingType.BlockWise1x128
    padded = F.pad(scale_b, (0, -scale_b.shape[1] % 4)).contiguous().t() if square else _by_columns(scale_b)
    product: Tensor = F.scaled_mm(
        a,
        b.t(),
        _by_columns(scale_a),
        F.ScalingType.BlockWise1x128,
        padded,
        blocks_b,
        swizzle_a=F.SwizzleType.NO_SWIZZLE,
        swizzle_b=F.SwizzleType.NO_SWIZZLE,
        output_dtype=torch.bfloat16,
    )
    return product


_multiply_blocks = torch.library.custom_op(
    "trainwright::multiply_blocks", _call_cublas, mutates_args=(), tags=(torch.Tag.needs_exact_strides,)
)
"""``_call_cublas`` as an opaque operator, including the layout of the scales, which a compiler does not
change. torch 2.13's compiler would turn ``scaled_mm`` into the older ``_scaled_mm``, which needs another
layout of scales."""

_multiply_blocks.register_fake(
    _call_cublas
)  # on fake tensors it checks shapes and layouts by torch's own rules
