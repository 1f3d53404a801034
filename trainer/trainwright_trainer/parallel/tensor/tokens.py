"""The tokens of a micro batch, cut over the ranks of an axis: how whole becomes part and part whole, forward and backward.

    owns    part    (B, T/t, …)   the rank's stretch of the micro batch's B·T tokens, in order; the shape is only a way to write it
            whole   (B, T, …)     all of them
    moves   what ``layers`` asks for: a gather of parts, or a sum of wholes of which each rank keeps its part

A stretch runs through the tokens of all sequences, so that parts lie one after the other in memory and nothing is
copied before or after it travels. What works on each token by itself does not see where a stretch begins.

Each operation has the other for its backward pass: what is gathered and then used by all ranks, each in its own way, has
a gradient that is a sum over ranks.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from trainwright_trainer.mesh import Axis


def gather(part_BTD: Tensor, axis: Axis) -> Tensor:
    """(B, T/t, D) → (B, T, D). The gradient is added up over the ranks, of which each gets its part."""
    whole: Tensor = _Gather.apply(part_BTD, axis)  # type: ignore[no-untyped-call]
    return whole


def scatter_sum(whole_BTD: Tensor, axis: Axis) -> Tensor:
    """(B, T, D), of which each rank has one summand → this rank's part (B, T/t, D) of the sum."""
    part: Tensor = _ScatterSum.apply(whole_BTD, axis)  # type: ignore[no-untyped-call]
    return part


def sum_gradient(weight: Tensor, axis: Axis) -> Tensor:
    """``weight``, which every rank holds whole and uses on its part of the tokens; the gradient is the sum of theirs."""
    same: Tensor = _SumGradient.apply(weight, axis)  # type: ignore[no-untyped-call]
    return same


class _Gather(Function):
    @staticmethod
    def forward(ctx: Any, part_BTD: Tensor, axis: Axis) -> Tensor:
        ctx.axis = axis
        return _gathered(part_BTD, axis)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_BTD: Tensor) -> tuple[Tensor, None]:
        return summed(gradient_BTD, ctx.axis), None


class _ScatterSum(Function):
    @staticmethod
    def forward(ctx: Any, whole_BTD: Tensor, axis: Axis) -> Tensor:
        ctx.axis = axis
        return summed(whole_BTD, axis)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_BTD: Tensor) -> tuple[Tensor, None]:
        return _gathered(gradient_BTD, ctx.axis), None


class _SumGradient(Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, axis: Axis) -> Tensor:
        ctx.axis = axis
        return weight.view_as(weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        axis: Axis = ctx.axis
        return axis.sum(gradient.clone()), None


def _gathered(part_BTD: Tensor, axis: Axis) -> Tensor:
    whole_ND = axis.gathered(part_BTD.flatten(0, 1).contiguous())
    return whole_ND.view(part_BTD.shape[0], -1, *part_BTD.shape[2:])


def summed(whole_BTD: Tensor, axis: Axis) -> Tensor:
    """``scatter_sum`` for who needs no gradient."""
    part_ND = axis.scatter_sum(whole_BTD.flatten(0, 1).contiguous())
    return part_ND.view(whole_BTD.shape[0], -1, *whole_BTD.shape[2:])
