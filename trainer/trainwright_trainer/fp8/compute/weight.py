"""A weight as layers see it, while its values are in the optimizer's buffers, in few bits.

Autograd needs a leaf of the weight's shape to return a gradient for. It never needs its values, so the leaf
(``handle``) is a single zero expanded with zero strides: it has shape, dtype and a ``grad``, and no memory.
The values are ``codes · scale``, views into buffers that the optimizer updates in place:

    O1  float32 masters            O2  float16 masters            O3  E4M3, gathered from the ranks that own masters

Weights with one dim (norms) are float32 at O3 too. Gradients arrive in the dtype of ``handle``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding

from trainwright_trainer.fp8.compute.formats import E4M3, widen

_FLOATS_PER_SCALE = 4


def aligned_scales(count: int, device: torch.device) -> Tensor:
    """Scales of 1, (count,) float32, 16 bytes apart: cuBLAS refuses a scale that is not aligned to 16 bytes."""
    return torch.ones(count, _FLOATS_PER_SCALE, device=device)[:, 0]


class StoredMatrix(NamedTuple):
    """A weight (N, K) as FP8 matmuls read it: ``codes · scale``."""

    codes: Tensor
    """(N, K) float32, float16 or E4M3."""

    scale: Tensor
    """() float32."""

    cast_scale: Tensor | None
    """() float32: the scale to cast the codes with; None if they are E4M3 already."""

    transposed: Tensor | None
    """(K, N) E4M3 codes of the same scale, if they are kept."""


class Weight(nn.Module):
    """Shape of a weight, and where its values are."""

    codes: Tensor
    """Codes of the weight's shape: float32, float16 or E4M3."""

    scale: Tensor
    """() float32, a power of two; 1 if codes are float32."""

    cast_scale: Tensor
    """() float32: the scale of an E4M3 copy of the entire weight, from its current amax."""

    operands: tuple[Tensor, Tensor] | None = None
    """E4M3 codes with ``cast_scale``, (N, K) and transposed (K, N), if they are kept for all micro batches of a step."""

    def __init__(self, shape: torch.Size, gradient_dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.handle = nn.Parameter(torch.zeros((), dtype=gradient_dtype, device=device).expand(shape))

    def attach(self, codes: Tensor, scale: Tensor, cast_scale: Tensor) -> None:
        """Set where the values are; they may change in place afterwards, the tensors may not.

        Args:
            cast_scale: one of ``aligned_scales``.
        """
        assert codes.shape == self.handle.shape
        assert cast_scale.storage_offset() % _FLOATS_PER_SCALE == 0, "the scale must be aligned to 16 bytes"
        for name, tensor in (("codes", codes), ("scale", scale), ("cast_scale", cast_scale)):
            # Views share their version counter with all others of the same buffer, and autograd
            # would raise an error when one weight is updated while another waits for its backward
            # pass. ``data`` has its own counter.
            self.register_buffer(name, tensor.data, persistent=False)

    def stored(self) -> StoredMatrix:
        """What FP8 matmuls read."""
        if self.operands is not None:
            codes_NK, codes_KN = self.operands
            return StoredMatrix(codes_NK, self.cast_scale, None, codes_KN)
        return StoredMatrix(
            self.codes, self.scale, None if self.codes.dtype is E4M3 else self.cast_scale, None
        )

    def dense(self) -> Tensor:
        """The weight in bfloat16, for bfloat16 matmuls; its gradient goes to ``handle``."""
        weight: Tensor = _Dense.apply(self.handle, self.codes, self.scale)
        return weight

    def rows(self, indices: Tensor) -> Tensor:
        """Rows (…, D) of ``dense()`` by index (…); no other rows are computed. The gradient is the same."""
        rows: Tensor = _Rows.apply(self.handle, self.codes, self.scale, indices)
        return rows


class _Dense(Function):
    @staticmethod
    def forward(handle: Tensor, codes: Tensor, scale: Tensor) -> Tensor:
        return _in_bfloat16(codes, scale)

    @staticmethod
    def setup_context(ctx: object, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> tuple[Tensor, None, None]:
        return gradient, None, None


class _Rows(Function):
    @staticmethod
    def forward(handle: Tensor, codes: Tensor, scale: Tensor, indices: Tensor) -> Tensor:
        # float8 cannot be indexed on all devices, but bytes can.
        table = codes.view(torch.uint8) if codes.itemsize == 1 else codes
        return _in_bfloat16(embedding(indices, table).view(codes.dtype), scale)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        handle, _, _, indices = inputs
        ctx.save_for_backward(indices)
        ctx.count = handle.shape[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        (indices,) = ctx.saved_tensors
        dense: Tensor = torch.ops.aten.embedding_dense_backward(gradient, indices, ctx.count, -1, False)
        return dense, None, None, None


def _in_bfloat16(codes: Tensor, scale: Tensor) -> Tensor:
    """``codes · scale``, rounded once: a power of two changes only the exponent, which bfloat16 stores in as
    many bits as float32.
    """
    if codes.dtype is torch.float32:
        return codes.bfloat16()
    return widen(codes, torch.bfloat16).mul_(scale.bfloat16())
