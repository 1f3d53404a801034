"""Which rank updates which weight when data ranks shard the optimizer state (ZeRO, Rajbhandari et al. 2020).

Only the owner of a weight has its moments, updates it and broadcasts it. Owners have entire tensors, not slices, as in
FP8-LM (section 3.3). So an update needs nothing from other ranks, and one rank computes a tensor's scale or norm. The
load is slightly uneven, because a model has many tensors per rank.

    owns   each rank the moments of its tensors; all have all weights, or their casts to bfloat16
    moves  every weight, once per update, from its owner to the ranks of its shard axis: in bfloat16 where the products
           read a stored cast (``linear.weight_casts``). The matrices of a block arrive while earlier blocks compute.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainwright_trainer.distributed.axis import Axis
from trainwright_trainer.distributed.shard_spec import assign_owners
from trainwright_trainer.linear.dense import DenseLinear
from trainwright_trainer.model.transformer import Transformer
from trainwright_trainer.parallel.data.gradient_buckets import split_into_buckets

_ALIGNED_ELEMENTS = 128
"""A weight in a buffer starts at a multiple of this. Memory allocated by torch has this alignment. With less, torch may
choose a slower kernel for these weights, or one that rounds differently."""


class Broadcast(NamedTuple):
    """A tensor that its owner sends to the other ranks."""

    owner: int
    tensor: Tensor


class OwnedParameters:
    """Weights with one owner each. A block waits in its forward pass until its own have arrived."""

    def __init__(
        self,
        model: Transformer,
        shard: Axis,
        sizes: Mapping[str, int],
        tied_replicas: Collection[str] = (),
    ) -> None:
        """Move the weights that are sent as they are into flat buffers.

        Args:
            model: has all weights on this rank, and the casts that its layers read.
            shard: the ranks that they are divided among.
            sizes: their elements. Tensor ranks, which may have unequal parts, give equal ones and so name the same owners.
            tied_replicas: have copies in other stages, with the same owner there.
        """
        self.owners = assign_owners(sizes, shard.ranks, first=tied_replicas)
        self._shard = shard
        self._pending: dict[nn.Module, list[dist.Work]] = {}
        weights = dict(model.named_parameters())
        owner_of = {weights[name]: owner for name, owner in self.owners.items()}
        in_blocks = {
            block: [weight for weight in block.parameters() if weight.ndim > 1]
            for block in model.layers.values()
        }
        of_blocks = {weight for matrices in in_blocks.values() for weight in matrices}
        others = [weight for weight in weights.values() if weight not in of_blocks]
        casts = _stored_casts(model.layers)
        self._first = _broadcasts(others, owner_of, casts)
        self._by_block = {block: _broadcasts(own, owner_of, casts) for block, own in in_blocks.items()}
        for block in in_blocks:
            block.register_forward_pre_hook(self._before_forward)

    def broadcast_params(self) -> None:
        """Start to send what each rank has updated. Vectors and the weights outside blocks have arrived on return."""
        for block in self._by_block:
            self._wait_for(block)  # no forward pass has read them
        first = self._start(self._first)
        self._pending = {block: self._start(sent) for block, sent in self._by_block.items()}
        for work in first:
            self._shard.wait(work)

    def _start(self, sent: Sequence[Broadcast]) -> list[dist.Work]:
        return [self._shard.broadcast_async(tensor, owner) for owner, tensor in sent]

    def _before_forward(self, block: nn.Module, _: object) -> None:
        self._wait_for(block)

    def _wait_for(self, block: nn.Module) -> None:
        for work in self._pending.pop(block, ()):
            self._shard.wait(work)


def _stored_casts(layers: nn.Module) -> dict[Tensor, Tensor]:
    return {
        layer.weight: layer.weight_cast
        for layer in layers.modules()
        if isinstance(layer, DenseLinear) and layer.weight_cast is not None
    }


def _broadcasts(
    weights: Sequence[nn.Parameter],
    owner_of: Mapping[nn.Parameter, int],
    casts: Mapping[Tensor, Tensor],
) -> list[Broadcast]:
    """Casts one by one, because fused layers share theirs; other weights in flat buffers, by owner."""
    sent = [Broadcast(owner_of[weight], casts[weight]) for weight in weights if weight in casts]
    for owner in sorted(set(owner_of.values())):
        members = [weight for weight in weights if weight not in casts and owner_of[weight] == owner]
        sent.extend(Broadcast(owner, _flatten(bucket)) for bucket in split_into_buckets(members))
    return sent


def _flatten(weights: Sequence[nn.Parameter]) -> Tensor:
    """Move ``weights`` into one flat buffer and return it."""
    padded_sizes = [-(-weight.numel() // _ALIGNED_ELEMENTS) * _ALIGNED_ELEMENTS for weight in weights]
    flat = torch.zeros(sum(padded_sizes), dtype=weights[0].dtype, device=weights[0].device)
    for weight, padded in zip(weights, torch.split(flat, padded_sizes), strict=True):
        view = padded[: weight.numel()].view_as(weight)
        view.copy_(weight.detach())
        weight.data = view
    return flat
