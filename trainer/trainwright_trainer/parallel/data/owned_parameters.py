"""Which rank updates which weight when data ranks shard the optimizer state (ZeRO, Rajbhandari et al. 2020).

Only the owner of a weight has its moments, updates it and broadcasts it. Owners have entire tensors, not slices, as in
FP8-LM (section 3.3). So an update needs nothing from other ranks, and one rank computes a tensor's scale or norm. The
load is slightly uneven, because a model has many tensors per rank.

    owns   each rank the moments of its tensors; all have all weights
    moves  every weight, once per update, from its owner to the ranks of its shard axis
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor, nn

from trainwright_trainer.distributed.axis import Axis
from trainwright_trainer.distributed.shard_spec import assign_owners
from trainwright_trainer.parallel.data.gradient_buckets import split_into_buckets

_ALIGNED_ELEMENTS = 128
"""A weight in a buffer starts at a multiple of this. Memory allocated by torch has this alignment. With less, torch may
choose a slower kernel for these weights, or one that rounds differently."""


class OwnedParameters:
    """Weights in flat buffers, one owner each, which are broadcast as they are."""

    def __init__(
        self,
        weights: Mapping[str, nn.Parameter],
        shard: Axis,
        sizes: Mapping[str, int],
        tied_replicas: Collection[str] = (),
    ) -> None:
        """Move the weights into the buffers.

        Args:
            weights: all weights on this rank.
            shard: the ranks that they are divided among.
            sizes: their elements. Tensor ranks, which may have unequal parts, give equal ones and so name the same owners.
            tied_replicas: have copies in other stages, with the same owner there.
        """
        self.owners = assign_owners(sizes, shard.ranks, first=tied_replicas)
        self._shard = shard
        self._buffers = [
            (owner, _flatten(members))
            for owner in range(shard.ranks)
            for members in split_into_buckets(
                weight for name, weight in weights.items() if self.owners[name] == owner
            )
        ]

    def broadcast_params(self) -> None:
        """Return when every rank has the weights of their owners. Owners send at the same time."""
        works = [self._shard.broadcast_async(buffer, owner) for owner, buffer in self._buffers]
        for work in works:
            self._shard.wait(work)


def _flatten(weights: Sequence[nn.Parameter]) -> Tensor:
    """Move ``weights`` into one flat buffer and return it."""
    padded_sizes = [-(-weight.numel() // _ALIGNED_ELEMENTS) * _ALIGNED_ELEMENTS for weight in weights]
    flat = torch.zeros(sum(padded_sizes), dtype=weights[0].dtype, device=weights[0].device)
    for weight, padded in zip(weights, torch.split(flat, padded_sizes), strict=True):
        view = padded[: weight.numel()].view_as(weight)
        view.copy_(weight.detach())
        weight.data = view
    return flat
