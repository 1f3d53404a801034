"""Cast a matrix to FP8 in both layouts at once: codes by rows for one matmul, and their transpose for the next.

Tensor cores require the contracted dim of both operands to be contiguous, so a matrix that enters two matmuls is
written twice. By default, a compiler fuses the second store into the kernel that computes the matrix. In a reduction
over rows, that store writes single bytes, one row of the result apart. On GPUs one kernel therefore reads a tile, and
writes it in both directions (``triton_kernels``); the compiler sees it as one operator. TransformerEngine's kernel
takes the amax in the same pass, which requires delayed scales: with the current amax a scale is known only after a
pass, which the compiler adds to the kernel that computes the matrix.

    R rows   C columns
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainwright_trainer.fp8.compute.formats import LARGEST, cast


def cast_and_transpose(x_RC: Tensor, factor: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """``x_RC · factor`` rounded to ``dtype``, clamped to its range; NaN stays NaN.

    Args:
        x_RC: float32, bfloat16 or float16.
        factor: () float32.

    Returns:
        Codes (R, C) and (C, R), both row-major.
    """
    if x_RC.device.type == "cuda":
        codes: tuple[Tensor, Tensor] = _in_one_kernel(x_RC.contiguous(), factor, dtype)
        return codes
    return in_torch(x_RC, factor, dtype)


def cast_and_transpose_into(x_RC: Tensor, factor: Tensor, codes_RC: Tensor, codes_CR: Tensor) -> None:
    """``cast_and_transpose`` of a contiguous ``x_RC`` into tensors that exist, which are contiguous too."""
    if x_RC.device.type == "cuda":
        _launch_into(x_RC, factor, codes_RC, codes_CR)
        return
    codes_RC.copy_(cast(x_RC.float() * factor, codes_RC.dtype))
    codes_CR.copy_(codes_RC.t())


def transpose(codes_RC: Tensor, after: Tensor) -> Tensor:
    """Codes (C, R), row-major, of a contiguous ``codes_RC``.

    Args:
        after: any tensor of the backward pass. A compiler would move an operator that reads only what the forward pass
            has into the forward pass, and save its result.
    """
    if codes_RC.device.type == "cuda":
        transposed: Tensor = _transpose_in_one_kernel(codes_RC, after)
        return transposed
    return codes_RC.t().contiguous()


def in_torch(x_RC: Tensor, factor: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """``cast_and_transpose`` in plain operators."""
    codes_RC = cast(x_RC.float() * factor, dtype)
    return codes_RC, codes_RC.t().contiguous()


def _launch(x_RC: Tensor, factor: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    codes_RC, codes_CR = _empty(x_RC, factor, dtype)
    _fill(x_RC, factor, codes_RC, codes_CR)
    return codes_RC, codes_CR


def _fill(x_RC: Tensor, factor: Tensor, codes_RC: Tensor, codes_CR: Tensor) -> None:
    from trainwright_trainer.fp8.compute.triton_kernels import launch_cast_and_transpose

    launch_cast_and_transpose(x_RC, factor, LARGEST[codes_RC.dtype], codes_RC, codes_CR)


def _empty(x_RC: Tensor, factor: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    rows, columns = x_RC.shape
    return x_RC.new_empty((rows, columns), dtype=dtype), x_RC.new_empty((columns, rows), dtype=dtype)


_in_one_kernel = torch.library.custom_op("trainwright::cast_and_transpose", _launch, mutates_args=())
_in_one_kernel.register_fake(_empty)

_launch_into = torch.library.custom_op(
    "trainwright::cast_and_transpose_into", _fill, mutates_args=("codes_RC", "codes_CR")
)
_launch_into.register_fake(lambda x_RC, factor, codes_RC, codes_CR: None)


def _launch_transpose(codes_RC: Tensor, after: Tensor) -> Tensor:
    from trainwright_trainer.fp8.compute.triton_kernels import launch_transpose

    codes_CR = _empty_transpose(codes_RC, after)
    launch_transpose(codes_RC, codes_CR)
    return codes_CR


def _empty_transpose(codes_RC: Tensor, after: Tensor) -> Tensor:
    return codes_RC.new_empty(codes_RC.shape[::-1])


_transpose_in_one_kernel = torch.library.custom_op(
    "trainwright::transpose_codes", _launch_transpose, mutates_args=()
)
_transpose_in_one_kernel.register_fake(_empty_transpose)
