"""One process that rounds where tensor ranks do: what they cut, it makes in as many parts, and adds the parts up.

In bfloat16 a sum of parts that were rounded each is another number than the sum rounded once. In the first step two tensor
ranks are at most half as far from a process that adds up parts as from one that does not, in every weight: at least half of
what they are off is this rounding. The rest comes of sums in float32, of norms' gradients and in the loss, where the last
bit can turn a later rounding; of other faults this says nothing, nor of later steps.
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

from tests.parity.learning import Task, Told, learn
from trainwright_trainer import build
from trainwright_trainer.mesh import Mesh
from trainwright_trainer.model.attention import Attention
from trainwright_trainer.model.feed_forward import FeedForward
from trainwright_trainer.model.loss import next_token_loss

_CUT_COLUMNS = ("output", "down")
"""Of these a rank has columns, of the others rows."""


def learn_in_parts(mesh: Mesh, task: Task, ranks: int) -> Told:
    """``task`` of one process, rounded as on ``ranks`` tensor ranks."""
    with _in_parts(ranks):
        return learn(mesh, task)


@contextmanager
def _in_parts(ranks: int) -> Iterator[None]:
    with ExitStack() as planted:
        for kind in (Attention, FeedForward):
            planted.enter_context(patch.object(kind, "forward", _sum_of_parts(kind.forward, ranks)))
        planted.enter_context(patch.object(build, "head_loss", partial(_head_loss, ranks=ranks)))
        yield


def _sum_of_parts(forward: Callable[..., Tensor], ranks: int) -> Callable[..., Tensor]:
    def in_parts(self: nn.Module, x_BTD: Tensor, *rest: Tensor) -> Tensor:
        # A view of its own lets autograd add up each part's gradient before the parts'.
        first, *others = (
            forward(_Part(self, rank, ranks), x_BTD.view_as(x_BTD), *rest) for rank in range(ranks)
        )
        return sum(others, first)

    return in_parts


class _Part:
    """A block's half as a rank sees it."""

    def __init__(self, module: nn.Module, rank: int, ranks: int) -> None:
        self._module, self._rank, self._ranks = module, rank, ranks

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        if not isinstance(found, nn.Linear):
            return found
        return partial(linear, weight=found.weight.chunk(self._ranks, int(name in _CUT_COLUMNS))[self._rank])


def _head_loss(features_BTD: Tensor, weight_VD: Tensor, targets_BT: Tensor, ranks: int, **_: Any) -> Tensor:
    rows = weight_VD.chunk(ranks)
    logits = [linear(features_BTD.view_as(features_BTD), part_VD) for part_VD in rows]
    return next_token_loss(torch.cat(logits, -1), targets_BT)
