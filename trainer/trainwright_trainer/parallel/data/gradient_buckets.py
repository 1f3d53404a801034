"""Data parallelism: each rank has the entire model, sees its share of the batch, and gradients are all-reduced.

Gradients are views into a few flat buckets, filled from the model's end to its start by the backward pass. A
bucket is reduced as soon as its last gradient is complete, while earlier layers are still computing (Li et
al. 2020). Buckets are sent in a fixed order, so the sums, and with them the training, repeat bit for bit.

    owns   each rank entire weights, for different sequences     moves   every gradient, once a step, over the data axis
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainwright_trainer.distributed.axis import Axis

BUCKET_BYTES = 25 * 2**20


class GradientBuckets:
    """Gradients of ``parameters`` as views into flat buckets that are summed over the ranks.

    Weights in ``own_bucket`` have a bucket each: the order in which ranks add up a value depends on its
    position in the bucket.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        data: Axis,
        own_bucket: AbstractSet[nn.Parameter] = frozenset(),
    ) -> None:
        self._data = data
        self._flat: list[Tensor] = []
        self._members: list[Sequence[nn.Parameter]] = []
        self._missing: list[set[nn.Parameter]] = []
        self._hooks_enabled = False
        self._works: list[dist.Work] = []
        self._bucket_of: dict[nn.Parameter, int] = {}
        for bucket, members in enumerate(split_into_buckets(reversed(parameters), own_bucket)):
            self._flat.append(_flatten_gradients(members))
            self._members.append(members)
            for weight in members:
                self._bucket_of[weight] = bucket
                weight.register_post_accumulate_grad_hook(self._on_grad_accumulated)

    def clear(self) -> None:
        """Set all gradients to zero; they stay where they are."""
        for flat in self._flat:
            flat.zero_()
        self._missing = [set(members) for members in self._members]

    def end_micro_batch(self) -> None:
        """Autograd adds the next micro batch's gradients to this one's."""

    def reduce_when_ready(self) -> None:
        """From now on a gradient is complete when autograd adds to it once more."""
        self._hooks_enabled = True

    def mark_ready(self, weights: Iterable[nn.Parameter]) -> None:
        """The gradients of ``weights`` are complete; buckets that are now complete are sent."""
        for weight in weights:
            self._missing[self._bucket_of[weight]].discard(weight)
        while len(self._works) < len(self._flat) and not self._missing[len(self._works)]:
            self._works.append(self._data.all_reduce_async(self._flat[len(self._works)]))

    def wait(self) -> None:
        """Return when all gradients are summed over all ranks."""
        assert len(self._works) == len(self._flat), "a weight got no gradient"
        for work in self._works:
            self._data.wait(work)
        self._works, self._hooks_enabled = [], False

    def _on_grad_accumulated(self, weight: Tensor) -> None:
        if self._hooks_enabled:
            assert isinstance(weight, nn.Parameter)
            self.mark_ready([weight])


def split_into_buckets(
    parameters: Iterable[nn.Parameter], own_bucket: AbstractSet[nn.Parameter] = frozenset()
) -> Iterator[list[nn.Parameter]]:
    """Consecutive weights of at least ``BUCKET_BYTES`` in total, and finally the rest.

    Args:
        own_bucket: each of these gets a separate bucket.
    """
    members: list[nn.Parameter] = []
    for weight in parameters:
        if weight in own_bucket and members:
            yield members
            members = []
        members.append(weight)
        if weight in own_bucket or sum(map(_bytes, members)) >= BUCKET_BYTES:
            yield members
            members = []
    if members:
        yield members


def _bytes(weight: nn.Parameter) -> int:
    return weight.numel() * weight.element_size()


def _flatten_gradients(members: Sequence[nn.Parameter]) -> Tensor:
    flat = torch.zeros(
        sum(weight.numel() for weight in members), dtype=members[0].dtype, device=members[0].device
    )
    views = torch.split(flat, [weight.numel() for weight in members])
    for weight, view in zip(members, views, strict=True):
        # Each has a separate version counter: a compiled block saves the gradients to which it will add in its forward
        # pass, and other gradients of the bucket change in the meantime.
        weight.grad = view.view_as(weight).data
    return flat
