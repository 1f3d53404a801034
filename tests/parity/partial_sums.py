"""One process that rounds like tensor ranks: it computes what they shard in parts, and adds the parts.

In bfloat16, a sum of parts that were each rounded differs from a sum that is rounded once. In the first step
two tensor ranks are at most half as far from a process that adds parts as from one that does not, in every
weight: at least half of their error is this rounding. The rest comes from float32 sums, in the gradients of
norms and in the loss, where the last bit can change a later rounding. This says nothing about other faults or
later steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from tests.parity.learning import RankResult, Task, learn
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.model.attention import Attention
from trainwright_trainer.model.feed_forward import FeedForward
from trainwright_trainer.model.loss import next_token_loss
from trainwright_trainer.training import build

_CUT_COLUMNS = ("output", "down")
"""A rank has columns of these and rows of the others."""


def learn_in_parts(mesh: Mesh, task: Task, ranks: int) -> RankResult:
    """Train ``task`` in one process, rounded as on ``ranks`` tensor ranks."""
    with _in_parts(ranks):
        return learn(mesh, task)


@contextmanager
def _in_parts(ranks: int) -> Iterator[None]:
    with ExitStack() as stack:
        for kind in (Attention, FeedForward):
            stack.enter_context(patch.object(kind, "forward", _sum_of_parts(kind.forward, ranks)))
        stack.enter_context(patch.object(build, "head_loss", partial(_head_loss, ranks=ranks)))
        yield


def _sum_of_parts(forward: Callable[..., Tensor], ranks: int) -> Callable[..., Tensor]:
    def in_parts(self: nn.Module, x_BTD: Tensor, *rest: Tensor) -> Tensor:
        # A separate view lets autograd sum each part's gradient before it sums over the parts.
        first, *others = (
            forward(_Part(self, rank, ranks), x_BTD.view_as(x_BTD), *rest) for rank in range(ranks)
        )
        return sum(others, first)

    return in_parts


class _Part:
    """A transformer block's attention or feed-forward as one rank sees it."""

    def __init__(self, module: nn.Module, rank: int, ranks: int) -> None:
        self._module, self._rank, self._ranks = module, rank, ranks

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        if name == "first_layers":
            return [self._part_of(layer, 0) for layer in found]
        return self._part_of(found, int(name in _CUT_COLUMNS)) if isinstance(found, nn.Linear) else found

    def _part_of(self, layer: nn.Linear, dimension: int) -> Callable[[Tensor], Tensor]:
        return partial(linear, weight=layer.weight.chunk(self._ranks, dimension)[self._rank])


def _head_loss(features_BTD: Tensor, weight_VD: Tensor, targets_BT: Tensor, ranks: int, **_: Any) -> Tensor:
    rows = weight_VD.chunk(ranks)
    logits = [linear(features_BTD.view_as(features_BTD), part_VD) for part_VD in rows]
    return next_token_loss(torch.cat(logits, -1), targets_BT)
