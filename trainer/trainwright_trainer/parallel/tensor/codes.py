"""The gather of tensor parallelism where FP8 products follow it: tokens are cast first, and travel in half the bytes.

    moves   forward    the largest absolute value of all parts, one number; then each part's codes, one byte an element
            backward   gradients of the gathered tokens, summed in bfloat16: sums in 8 bits would lose digits with each rank

All parts are cast with one scale, from the maximum over the ranks (FP8-LM, section 2.2), so the codes are those that
one process makes of the whole, and so is the amax that enters the history. Products read nothing but codes. What stands
for the gathered tokens in autograd has their shape, and no memory.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from trainwright_trainer.fp8.formats import E4M3, amax_of
from trainwright_trainer.fp8.linear import Input
from trainwright_trainer.fp8.modules import InputCast
from trainwright_trainer.fp8.products import Measured, Operand, by_amax
from trainwright_trainer.mesh import Axis
from trainwright_trainer.parallel.tensor.tokens import summed


class GatheredCast(InputCast):
    """Casts this rank's part of an input and gives layers the whole; with one scale for it all."""

    axis: Axis
    gathered: Input | None = None
    """While the layers that read it compute."""

    def gather(self, part_BTD: Tensor) -> Tensor:
        """(B, T/t, D) → what stands for (B, T, D); ``forward`` gives its codes until ``let_go``."""
        with torch.no_grad():
            self.gathered = self._gather(part_BTD.flatten(0, 1))
        whole: Tensor = _StandIn.apply(part_BTD, self.axis)  # type: ignore[no-untyped-call]
        return whole

    def let_go(self) -> None:
        self.gathered = None

    def forward(self, x: Tensor) -> Input:
        assert self.gathered is not None, "the input of this layer is gathered first"
        return self.gathered

    def cast_part(self, part_MK: Tensor) -> Measured:
        """This rank's part, cast as a part of the whole."""
        amax = self.axis.max(amax_of(part_MK))
        if self.training:
            self.amax.copy_(torch.maximum(self.amax, amax))
        return Measured(by_amax(part_MK, E4M3, self.delayed, amax), amax)

    def _gather(self, part_MK: Tensor) -> Input:
        (codes_MK, scale), amax = self.cast_part(part_MK)
        whole_MK = self.axis.gathered(codes_MK.view(torch.uint8)).view(E4M3)
        return Input(Operand(whole_MK, scale), None, amax)


class _StandIn(Function):
    @staticmethod
    def forward(ctx: Any, part_BTD: Tensor, axis: Axis) -> Tensor:
        ctx.axis = axis
        sequences, positions, width = part_BTD.shape
        return part_BTD.new_zeros(()).expand(sequences, positions * axis.ranks, width)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_BTD: Tensor) -> tuple[Tensor, None]:
        return summed(gradient_BTD, ctx.axis), None
