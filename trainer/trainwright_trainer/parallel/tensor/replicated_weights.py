"""Gradients of weights that every tensor rank has in full: norms, some biases, learned positions.

Each rank applies such a weight to its tokens or heads only, so its gradient is one term of a sum. These weights are small
and many. So each rank accumulates its own gradients over the micro batches of a step, as for any weight, and before the
update the ranks sum the gradients of all these weights at once, instead of one by one in each backward pass.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from trainwright_trainer.distributed.axis import Axis


def sum_gradients(weights: Iterable[nn.Parameter], axis: Axis) -> None:
    """Sum the gradients of ``weights``, of those that have one, over the ranks of ``axis``."""
    sum_over_ranks([weight.grad for weight in weights if weight.grad is not None], axis)


def sum_over_ranks(parts: list[Tensor], axis: Axis) -> None:
    """Sum ``parts`` in place over the ranks of ``axis``, in float32 and in one collective."""
    if axis.ranks == 1 or not parts:
        return
    flat = axis.all_reduce(torch.cat([part.flatten().float() for part in parts]))
    sums = flat.split([part.numel() for part in parts])
    torch._foreach_copy_(parts, [total.view_as(part) for total, part in zip(sums, parts, strict=True)])
