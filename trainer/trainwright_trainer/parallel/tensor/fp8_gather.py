"""The gather of tensor parallelism before FP8 matmuls: tokens are cast first, which halves the bytes that are sent.

    moves   forward    the largest absolute value of all parts, one number; then each part's codes, one byte per element
            backward   gradients of the gathered tokens, summed in bfloat16: sums in 8 bits would lose digits with each rank

All parts are cast with one scale, from the maximum over the ranks (FP8-LM, section 2.2). So the codes, and
the amax that enters the history, are those of a single process. Matmuls read only codes. In autograd the
gathered tokens are represented by a tensor that has their shape and no memory.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from trainwright_trainer.distributed.axis import Axis
from trainwright_trainer.fp8.compute.casting import cast_with_amax
from trainwright_trainer.fp8.compute.formats import E4M3, amax_of
from trainwright_trainer.fp8.compute.linear import InputCast
from trainwright_trainer.fp8.compute.matmul import Operand
from trainwright_trainer.linear.linear_function import Cast
from trainwright_trainer.parallel.tensor.sequence_parallel import reduce_scatter_tensor


class GatheringInputCast(InputCast):
    """Casts this rank's part of an input and gives layers the gathered input; all parts share one scale."""

    full_input: Cast | None = None
    """Set while the layers that read it compute."""

    def __init__(self, cast: InputCast, axis: Axis) -> None:
        """Replace ``cast``, whose amax and scale stay the same tensors."""
        super().__init__(cast.scaling, cast.amax.device)
        self.amax, self.delayed = cast.amax, cast.delayed
        self.axis = axis

    def all_gather(self, part_BTD: Tensor) -> Tensor:
        """(B, T/t, D) → a placeholder of shape (B, T, D); ``forward`` returns its codes until ``release``."""
        with torch.no_grad():
            self.full_input = self._gather(part_BTD.flatten(0, 1))
        placeholder: Tensor = _Placeholder.apply(part_BTD, self.axis)
        return placeholder

    def release(self) -> None:
        self.full_input = None

    def forward(self, x: Tensor) -> Cast:
        assert self.full_input is not None, "the input of this layer is gathered first"
        return self.full_input

    def cast_local(self, part_MK: Tensor) -> Cast:
        """Cast this rank's part with the scale of the entire input."""
        amax = self.axis.all_reduce_max(amax_of(part_MK))
        if self.training:
            self.amax.copy_(torch.maximum(self.amax, amax))
        return Cast(cast_with_amax(part_MK, E4M3, self.delayed, amax), None, amax)

    def _gather(self, part_MK: Tensor) -> Cast:
        part = self.cast_local(part_MK)
        codes_MK, scale = part.rows
        full_MK = self.axis.all_gather(codes_MK.view(torch.uint8)).view(E4M3)
        return part._replace(rows=Operand(full_MK, scale))


class _Placeholder(Function):
    @staticmethod
    def forward(ctx: Any, part_BTD: Tensor, axis: Axis) -> Tensor:
        ctx.axis = axis
        sequences, positions, width = part_BTD.shape
        return part_BTD.new_zeros(()).expand(sequences, positions * axis.ranks, width)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_BTD: Tensor) -> tuple[Tensor, None]:
        return reduce_scatter_tensor(gradient_BTD, ctx.axis), None
