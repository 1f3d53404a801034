"""FP8 matmuls: the one function that multiplies, and what each device needs for it.

A matmul contracts one dim. Scales may vary along the other dims, and by block along the contracted one:

    tensor   a ()          one scale for the entire matrix
    row      a (R, 1)      one for each row
    block    a (R, C/128)  one for each 1 × 128 along the contracted dim, or (R/128, C/128) for each 128 × 128

An ``Operand`` always has the contracted dim last and contiguous, and ``scaled_matmul`` computes a · bᵀ, the
layout (row-major times column-major) that tensor cores need. On a GPU torch's scaled matmuls multiply the
codes. CPUs have no fast ones: there the numbers are multiplied in a wider format that represents them exactly,
and what GPUs refuse is refused too.

    R rows   C contracted
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from trainwright.contracts.precision_spec import FP8_CAPABILITY, FP8_CAPABILITY_OF_BLOCKS, ScalingKind
from trainwright_trainer.fp8.compute.formats import E5M2, widen
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


def scaled_matmul(a: Operand, b: Operand, out: torch.dtype, fast_accumulation: bool = False) -> Tensor:
    """a · bᵀ, accumulated in float32.

    Args:
        a: (M, C); only this operand may be E5M2, a restriction of row-wise kernels, and not with scales by block.
        b: (N, C).
        out: bfloat16 or float32. On GPUs all results but those with scales by tensor are rounded to bfloat16
            first: not every GPU supports float32 results.
        fast_accumulation: let tensor cores accumulate in fewer bits than float32; for forward matmuls.

    Returns:
        (M, N).
    """
    _check_layout(a.codes, b.codes)
    by_block = a.scale.ndim == 2 and b.scale.shape != (b.codes.shape[0], 1)
    assert not (by_block and a.codes.dtype is E5M2), "with scales by block, both operands are E4M3"
    if a.codes.device.type == "cpu":
        return _multiply_exactly(a, b, out)
    if a.scale.ndim == 0:
        return _scaled_mm(a.codes, b.codes, a.scale, b.scale, out, fast_accumulation)
    if not by_block:
        return _scaled_mm(a.codes, b.codes, a.scale, b.scale.t(), torch.bfloat16, fast_accumulation).to(out)
    blocks: Tensor = _multiply_blocks(a.codes, b.codes, a.scale, b.scale)
    return blocks.to(out)


def dequantize(operand: Operand, dtype: torch.dtype = torch.float32) -> Tensor:
    """The real numbers. Scales are powers of two, so bfloat16 represents them as exactly as float32."""
    codes, scale = widen(operand.codes, dtype), operand.scale.to(dtype)
    if scale.ndim == 0 or scale.shape == (codes.shape[0], 1):
        return codes.mul_(scale)
    blocks = blocks_of(codes, codes.shape[0] // scale.shape[0])
    blocks.mul_(scale[:, None, :, None])
    return codes


def blocks_of(x_RC: Tensor, rows: int) -> Tensor:
    """(R, C) → (R/rows, rows, C/128, 128)."""
    blocks: Tensor = torch.unflatten(torch.unflatten(x_RC, 1, (-1, BLOCK)), 0, (-1, rows))
    return blocks


def check_device(scaling: ScalingKind, device: torch.device) -> None:
    """Refuse a scaling that ``device`` has no matmuls for.

    Raises:
        BadJobError: names the field and the reason.
    """
    if device.type != "cuda":
        return
    capability = torch.cuda.get_device_capability(device)
    if capability < FP8_CAPABILITY:
        raise BadJobError(
            f"precision.kind: fp8 needs a GPU of compute capability {_dotted(FP8_CAPABILITY)} or newer, this one has {_dotted(capability)}"
        )
    if scaling is ScalingKind.BLOCK:
        _check_blocks(capability)


def _check_blocks(capability: tuple[int, int]) -> None:
    """cuBLAS multiplies blocks of 128 with float32 scales since 12.9, on Hopper GPUs only."""
    toolkit = tuple(map(int, (torch.version.cuda or "0.0").split(".")[:2]))
    if capability[0] != FP8_CAPABILITY_OF_BLOCKS:
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
    matmul: Tensor = torch._scaled_mm(a, b.t(), scale_a, scale_b, out_dtype=out, use_fast_accum=fast)
    return matmul


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
    matmul: Tensor = F.scaled_mm(
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
    return matmul


_multiply_blocks = torch.library.custom_op(
    "trainwright::multiply_blocks", _call_cublas, mutates_args=(), tags=(torch.Tag.needs_exact_strides,)
)
"""``_call_cublas`` as an opaque operator, including the layout of the scales, which a compiler does not
change. torch 2.13's compiler would turn ``scaled_mm`` into the older ``_scaled_mm``, which needs another
layout of scales."""

_multiply_blocks.register_fake(
    _call_cublas
)  # on fake tensors it checks shapes and layouts by torch's own rules
