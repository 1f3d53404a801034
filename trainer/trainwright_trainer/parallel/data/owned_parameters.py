"""Which rank updates which weight when data ranks shard the optimizer state (ZeRO, Rajbhandari et al. 2020).

Only the owner of a weight has its moments, updates it and broadcasts it. Owners have entire tensors, not slices, as in
FP8-LM (section 3.3). So an update needs nothing from other ranks, and one rank computes a tensor's scale or norm. The
load is slightly uneven, because a model has many tensors per rank.

    owns   each rank the moments of its tensors; all have all weights, some of them up to date only as casts to bfloat16
    moves  every weight, once per update, from its owner to the ranks of its shard axis: in bfloat16 where the matmuls
           read a stored cast (``linear.weight_casts``). The matrices of a block arrive while earlier blocks compute.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor, nn

from trainwright_trainer.distributed.axis import Axis, PendingTensors
from trainwright_trainer.distributed.shard_spec import assign_owners
from trainwright_trainer.linear.dense import DenseLinear
from trainwright_trainer.model.transformer import Transformer
from trainwright_trainer.parallel.data.gradient_buckets import split_into_buckets

_ALIGNED_ELEMENTS = 128
"""A weight in a buffer starts at a multiple of this. Memory allocated by torch has this alignment. With less, torch may
choose a slower kernel for these weights, or one that rounds differently."""


class OwnedParameters:
    """Weights with one owner each. A module waits in its forward pass until the weights that it needs have arrived."""

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
        self._pending: dict[nn.Module, PendingTensors | None] = {}
        weights = dict(model.named_parameters())
        owner_of = {weights[name]: owner for name, owner in self.owners.items()}
        casts = _stored_casts(model.layers)
        awaited = _weights_by_module(model, weights)
        late = {weight for matrices in awaited.values() for weight in matrices}
        self._first = _tensors([weight for weight in weights.values() if weight not in late], owner_of, casts)
        self._by_module = {module: _tensors(own, owner_of, casts) for module, own in awaited.items()}
        for module in awaited:
            module.register_forward_pre_hook(self._before_forward)

    def broadcast_params(self) -> None:
        """Start to send what each rank has updated. Weights that no module waits for have arrived on return."""
        assert not self._pending, "a forward pass has waited for the weights of the last update"
        first = self._shard.broadcast_all_async(self._first)
        self._pending = {
            module: self._shard.broadcast_all_async(tensors) for module, tensors in self._by_module.items()
        }
        self._shard.wait_all(first)

    def _before_forward(self, module: nn.Module, _: object) -> None:
        self._shard.wait_all(self._pending.pop(module, None))


def _weights_by_module(
    model: Transformer, weights: Mapping[str, nn.Parameter]
) -> dict[nn.Module, list[nn.Parameter]]:
    """The matrices that a module waits for, in the order of the forward pass. The embedding is needed immediately, and
    vectors are small. The norm before an untied head waits for the head, whose weight losses read directly."""
    by_module: dict[nn.Module, list[nn.Parameter]] = {
        block: [weight for weight in block.parameters() if weight.ndim > 1] for block in model.layers.values()
    }
    head = weights.get("head.weight")
    if head is not None:
        by_module[model.norm] = [head]
    return by_module


def _stored_casts(layers: nn.Module) -> dict[Tensor, Tensor]:
    return {
        layer.weight: layer.weight_cast
        for layer in layers.modules()
        if isinstance(layer, DenseLinear) and layer.weight_cast is not None
    }


def _tensors(
    weights: Sequence[nn.Parameter], owner_of: Mapping[nn.Parameter, int], casts: Mapping[Tensor, Tensor]
) -> list[tuple[int, Tensor]]:
    """Owners and what they send: casts one by one, because fused layers share theirs; other weights in flat buffers."""
    sent = [(owner_of[weight], casts[weight]) for weight in weights if weight in casts]
    for owner in sorted(set(owner_of.values())):
        members = [weight for weight in weights if weight not in casts and owner_of[weight] == owner]
        sent.extend((owner, _flatten(bucket)) for bucket in split_into_buckets(members))
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
