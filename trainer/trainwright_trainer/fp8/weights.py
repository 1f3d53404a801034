"""A weight as a layer sees it, while its numbers live elsewhere: in the optimizer's buffers, in few bits.

Autograd wants a leaf of the weight's shape to return a gradient for. It never needs its numbers, so the leaf
(``handle``) is a single zero seen through zero strides: it has shape, dtype and a ``grad``, and no memory. The numbers
are ``codes · scale``, views into buffers that the optimizer updates in place:

    O1  float32 masters            O2  float16 masters            O3  E4M3, gathered from the ranks that own masters

Weights with one dim (norms) are held in float32 at O3 too. The dtype of ``handle`` is the one gradients arrive in.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding

from trainwright_trainer.fp8.formats import widen


class Weight(nn.Module):
    """Shape and name of a weight, and where its numbers lie."""

    codes: Tensor
    """Of the weight's shape: float32, float16 or E4M3."""

    scale: Tensor
    """() float32, a power of two; 1 where codes are float32."""

    cast_scale: Tensor
    """() float32: the scale with which an E4M3 copy of the whole weight is made, from its present amax."""

    def __init__(self, shape: torch.Size, gradient_dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.handle = nn.Parameter(torch.zeros((), dtype=gradient_dtype, device=device).expand(shape))

    def attach(self, codes: Tensor, scale: Tensor, cast_scale: Tensor) -> None:
        """Say where the numbers lie; they may change in place afterwards, the tensors may not."""
        assert codes.shape == self.handle.shape
        for name, tensor in (("codes", codes), ("scale", scale), ("cast_scale", cast_scale)):
            # A view counts its changes with all others of its buffer, and autograd would refuse to go on when one weight
            # moves while another waits for its backward pass. ``data`` counts alone.
            self.register_buffer(name, tensor.data, persistent=False)

    def dense(self) -> Tensor:
        """The weight in bfloat16, for products that stay high; its gradient goes to ``handle``."""
        weight: Tensor = _Dense.apply(self.handle, self.codes, self.scale)  # type: ignore[no-untyped-call]
        return weight

    def rows(self, indices: Tensor) -> Tensor:
        """Rows (…, D) of ``dense()`` by their numbers (…); no others are made. The gradient is as if they were."""
        rows: Tensor = _Rows.apply(self.handle, self.codes, self.scale, indices)  # type: ignore[no-untyped-call]
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
        # float8 cannot be indexed everywhere; bytes can.
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
    """``codes · scale``, rounded once: a power of two moves the exponent only, which bfloat16 has as many of as float32."""
    if codes.dtype is torch.float32:
        return codes.bfloat16()
    return widen(codes, torch.bfloat16).mul_(scale.bfloat16())
