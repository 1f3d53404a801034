"""Sequence parallelism: the tokens of a micro batch, split over the ranks of an axis, gathered and scattered
with autograd.

    owns    part    (B, T/t, …)   the rank's range of the micro batch's B·T tokens, in order; the shape is only notation
            full    (B, T, …)     all of them
    moves   what ``layers`` needs: an all-gather of parts, or a reduce-scatter of partial sums

A range extends over the tokens of all sequences, so parts are contiguous in memory and need no copy before or after a
collective. Operations on single tokens do not depend on where a range starts.

Each operation is the other's backward pass: if a tensor is gathered and then used differently by each rank, its
gradient is a sum over ranks.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from trainwright_trainer.distributed.axis import Axis


def all_gather(part_BTD: Tensor, axis: Axis) -> Tensor:
    """(B, T/t, D) → (B, T, D). The gradient is reduce-scattered."""
    full: Tensor = AllGather.apply(part_BTD, axis)
    return full


def reduce_scatter(full_BTD: Tensor, axis: Axis) -> Tensor:
    """(B, T, D), a partial sum on each rank → this rank's part (B, T/t, D) of the sum. The gradient is
    gathered.
    """
    part: Tensor = ReduceScatter.apply(full_BTD, axis)
    return part


def own_part(full_BT: Tensor, axis: Axis) -> Tensor:
    """(B, T), the same on all ranks → this rank's part (B, T/t)."""
    return full_BT.flatten().chunk(axis.ranks)[axis.rank].view(len(full_BT), -1)


def all_reduce(terms_BTD: Tensor, axis: Axis) -> Tensor:
    """(B, T, D), a partial sum on each rank → the sum on every rank. Ranks compute different results from it, so its
    gradient is all-reduced too.
    """
    total: Tensor = AllReduce.apply(terms_BTD, axis)
    return total


class AllGather(Function):
    """``all_gather`` as a node of the autograd graph."""

    @staticmethod
    def forward(ctx: Any, part_BTD: Tensor, axis: Axis) -> Tensor:
        ctx.axis = axis
        return _all_gather(part_BTD, axis)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_BTD: Tensor) -> tuple[Tensor, None]:
        return reduce_scatter_tensor(gradient_BTD, ctx.axis), None


class ReduceScatter(Function):
    """``reduce_scatter`` as a node of the autograd graph."""

    @staticmethod
    def forward(ctx: Any, full_BTD: Tensor, axis: Axis) -> Tensor:
        ctx.axis = axis
        return reduce_scatter_tensor(full_BTD, axis)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_BTD: Tensor) -> tuple[Tensor, None]:
        return _all_gather(gradient_BTD, ctx.axis), None


class AllReduce(Function):
    """``all_reduce`` as a node of the autograd graph."""

    @staticmethod
    def forward(ctx: Any, terms_BTD: Tensor, axis: Axis) -> Tensor:
        ctx.axis = axis
        return axis.all_reduce(terms_BTD.clone())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_BTD: Tensor) -> tuple[Tensor, None]:
        axis: Axis = ctx.axis
        return axis.all_reduce(gradient_BTD.clone()), None


def _all_gather(part_BTD: Tensor, axis: Axis) -> Tensor:
    full_ND = axis.all_gather(part_BTD.flatten(0, 1).contiguous())
    return full_ND.view(part_BTD.shape[0], -1, *part_BTD.shape[2:])


def reduce_scatter_tensor(full_BTD: Tensor, axis: Axis) -> Tensor:
    """``reduce_scatter`` without autograd."""
    part_ND = axis.reduce_scatter(full_BTD.flatten(0, 1).contiguous())
    return part_ND.view(full_BTD.shape[0], -1, *full_BTD.shape[2:])
