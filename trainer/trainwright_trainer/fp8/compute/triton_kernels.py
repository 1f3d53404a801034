"""Kernels for GPUs, in Triton, which comes with torch's builds for GPUs: nothing else imports it.

Each kernel has a plain form in torch next to its caller, which defines the result and runs on CPUs.

    R rows   C columns
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE_ROWS, TILE_COLUMNS, WARPS = 128, 64, 4
"""Tile of one program: each thread writes 16 contiguous bytes of both results, and nothing spills (`make bench ONLY=gpu-program`)."""


def launch_cast_and_transpose(
    x_RC: Tensor, factor: Tensor, largest: float, codes_RC: Tensor, codes_CR: Tensor
) -> None:
    """Fill the contiguous ``codes_RC`` and ``codes_CR``; see ``cast_transpose``."""
    rows, columns = x_RC.shape
    grid = (triton.cdiv(rows, TILE_ROWS), triton.cdiv(columns, TILE_COLUMNS))
    cast_and_transpose[grid](
        x_RC,
        factor,
        codes_RC,
        codes_CR,
        rows,
        columns,
        largest,
        TILE_ROWS,
        TILE_COLUMNS,
        num_warps=WARPS,
    )


def launch_transpose(codes_RC: Tensor, codes_CR: Tensor) -> None:
    """Fill the contiguous ``codes_CR`` with the transpose of the contiguous ``codes_RC``, which are bytes."""
    rows, columns = codes_RC.shape
    grid = (triton.cdiv(rows, TILE_ROWS), triton.cdiv(columns, TILE_COLUMNS))
    given, transposed = codes_RC.view(torch.uint8), codes_CR.view(torch.uint8)
    transpose[grid](given, transposed, rows, columns, TILE_ROWS, TILE_COLUMNS, num_warps=WARPS)


def _cast_and_transpose(
    x: tl.tensor,
    factor: tl.tensor,
    codes: tl.tensor,
    transposed: tl.tensor,
    rows: tl.tensor,
    columns: tl.tensor,
    LARGEST: tl.constexpr,
    TILE_R: tl.constexpr,
    TILE_C: tl.constexpr,
) -> None:
    """Read a tile once, and write it once in each direction: Triton turns it in shared memory in between."""
    row = tl.program_id(0).to(tl.int64) * TILE_R + tl.arange(0, TILE_R)
    column = tl.program_id(1).to(tl.int64) * TILE_C + tl.arange(0, TILE_C)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    number = tl.load(x + row[:, None] * columns + column[None, :], mask=inside, other=0.0).to(tl.float32)
    scaled = number * tl.load(factor)
    # NaN stays NaN, which a plain minimum would drop.
    clamped = tl.clamp(scaled, -LARGEST, LARGEST, propagate_nan=tl.PropagateNan.ALL)
    code = clamped.to(codes.dtype.element_ty)
    tl.store(codes + row[:, None] * columns + column[None, :], code, mask=inside)
    tl.store(transposed + column[:, None] * rows + row[None, :], tl.trans(code), mask=tl.trans(inside))


def _transpose(
    codes: tl.tensor,
    transposed: tl.tensor,
    rows: tl.tensor,
    columns: tl.tensor,
    TILE_R: tl.constexpr,
    TILE_C: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64) * TILE_R + tl.arange(0, TILE_R)
    column = tl.program_id(1).to(tl.int64) * TILE_C + tl.arange(0, TILE_C)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    code = tl.load(codes + row[:, None] * columns + column[None, :], mask=inside)
    tl.store(transposed + column[:, None] * rows + row[None, :], tl.trans(code), mask=tl.trans(inside))


cast_and_transpose = triton.jit(_cast_and_transpose)
transpose = triton.jit(_transpose)
