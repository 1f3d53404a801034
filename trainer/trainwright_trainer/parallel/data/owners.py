"""Who moves which weight, where data ranks share the states of the optimizer (ZeRO, Rajbhandari et al. 2020).

Each weight tensor has one owner, who alone has its moments and moves it, and then hands it round. Whole tensors and not
pieces, as in FP8-LM (section 3.3): an owner's work then needs nothing of other ranks, and a scale or a norm of a tensor
has one place. What is lost is balance, little of it, for a model has many tensors per rank.

    owns   each rank the moments of its tensors; all hold all weights
    moves  every weight, once an update, from its owner to the ranks of its shard axis
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor, nn

from trainwright_trainer.mesh import Axis
from trainwright_trainer.parallel.data.replicate import in_buckets
from trainwright_trainer.parts import balance

_ALIGNED_ELEMENTS = 128
"""A weight in a buffer begins at a multiple of these: products read memory of their own that is aligned so, and no slower
kernel, nor one that rounds otherwise, is chosen for it here."""


class OwnedWeights:
    """Weights in flat buffers, each of one owner, which travel as they are."""

    def __init__(self, weights: Mapping[str, nn.Parameter], shard: Axis, twins: Collection[str] = ()) -> None:
        """``twins`` have copies in other stages, and the same owner there."""
        sizes = {name: weight.numel() for name, weight in weights.items()}
        self.owners = balance(sizes, shard.ranks, before=twins)
        self._shard = shard
        self._buffers = [
            (owner, _lay_together(members))
            for owner in range(shard.ranks)
            for members in in_buckets(
                weight for name, weight in weights.items() if self.owners[name] == owner
            )
        ]

    def hand_round(self) -> None:
        """Return when every rank has the weights as their owners have them. Owners send at the same time."""
        works = [self._shard.start_broadcast(buffer, owner) for owner, buffer in self._buffers]
        for work in works:
            self._shard.finish(work)


def _lay_together(weights: Sequence[nn.Parameter]) -> Tensor:
    """Move ``weights`` into one flat buffer, which is returned."""
    rooms = [-(-weight.numel() // _ALIGNED_ELEMENTS) * _ALIGNED_ELEMENTS for weight in weights]
    flat = torch.zeros(sum(rooms), dtype=weights[0].dtype, device=weights[0].device)
    for weight, room in zip(weights, torch.split(flat, rooms), strict=True):
        place = room[: weight.numel()].view_as(weight)
        place.copy_(weight.detach())
        weight.data = place
    return flat
