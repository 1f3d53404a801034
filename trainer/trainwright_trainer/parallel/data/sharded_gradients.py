"""Gradients that only the owner of a weight keeps (ZeRO stage 2, Rajbhandari et al. 2020).

A backward pass computes gradients from the model's end to its start. Each is copied into a flat bucket and
freed; a full bucket is reduced to the owners of its tensors (``owned_parameters``) while the next one fills, and then
freed. An owner adds what it receives to its sum, micro batch after micro batch. With more data ranks than the
shard axis has, sums are all-reduced over the replicas in the last micro batch.

    owns   each rank the gradients of its tensors      moves   every gradient, once per micro batch, to its owner
    memory  own sums + two buckets, one filling and one in flight

In a pipeline several micro batches are in flight at once. There autograd adds to the full gradients of a stage until
``mark_ready`` names them, and they are sent only then. So sharding reduces the memory after the step, not the peak.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.parallel.data.gradient_buckets import split_into_buckets


@dataclass
class _Bucket:
    """Weights whose gradients are sent together; those of one owner are adjacent."""

    ranges: dict[nn.Parameter, slice]
    """The elements of each weight."""

    segments: dict[int, slice]
    """The elements of each owner."""

    local_sum: Tensor
    """Sums of this rank's own elements."""

    local_sums: dict[nn.Parameter, Tensor]
    """The same by weight."""

    missing: set[nn.Parameter] = field(default_factory=set)
    flat: Tensor | None = None
    """The gradients of this micro batch, while the bucket is filled and sent."""

    def take(self, weight: nn.Parameter) -> None:
        """Move the gradient of ``weight`` into the bucket."""
        assert weight.grad is not None, "a weight got no gradient"
        if self.flat is None:
            self.flat = weight.new_empty(sum(member.numel() for member in self.ranges))
        self.flat[self.ranges[weight]] = weight.grad.flatten()
        weight.grad = None
        self.missing.discard(weight)


class ShardedGradients:
    """Sums of the gradients of ``weights`` over the data ranks, each at its owner."""

    def __init__(
        self,
        weights: Mapping[str, nn.Parameter],
        owners: Mapping[str, int],
        mesh: Mesh,
        every_micro_batch: bool,
        tied_replicas: Collection[str] = (),
    ) -> None:
        """Create the buckets and register the hooks.

        Args:
            owners: of the weights, as ranks of the shard axis.
            every_micro_batch: whether gradients are sent in each backward pass, by autograd's hooks.
            tied_replicas: weights that get a separate bucket; see ``GradientBuckets``.
        """
        self._shard, self._replicas = mesh.shard, mesh.replicas
        self._every_micro_batch = every_micro_batch
        self._hooks_enabled, self._last_micro_batch = False, False
        owner_of = {weight: owners[name] for name, weight in weights.items()}
        self._buckets = [
            _make_bucket(members, owner_of, self._shard.rank)
            for members in split_into_buckets(
                reversed(list(weights.values())), {weights[name] for name in tied_replicas}
            )
        ]
        self._bucket_of = {weight: bucket for bucket in self._buckets for weight in bucket.ranges}
        for weight in owner_of:
            weight.register_post_accumulate_grad_hook(self._on_grad_accumulated)
        self._sent = 0
        self._in_flight: list[dist.Work] = []
        self._over_replicas: list[dist.Work] = []

    def clear(self) -> None:
        """Clear the gradients of the previous step; the first micro batch starts."""
        for bucket in self._buckets:
            bucket.local_sum.zero_()
            for weight in bucket.ranges:
                weight.grad = None
        self._hooks_enabled, self._last_micro_batch = self._every_micro_batch, not self._every_micro_batch
        self._start_micro_batch()

    def end_micro_batch(self) -> None:
        """A micro batch that is not the last has ended. In a pipeline this says nothing about gradients."""
        if self._every_micro_batch:
            self._finish_micro_batch()
            self._start_micro_batch()

    def reduce_when_ready(self) -> None:
        """The last micro batch starts."""
        self._hooks_enabled, self._last_micro_batch = True, True

    def mark_ready(self, weights: Iterable[nn.Parameter]) -> None:
        """The gradients of ``weights`` are complete; buckets that are now full are sent."""
        for weight in weights:
            self._bucket_of[weight].take(weight)
        while self._sent < len(self._buckets) and not self._buckets[self._sent].missing:
            self._send()

    def wait(self) -> None:
        """Return when owned weights have the sums over all ranks and micro batches as gradients, and the
        others have none.
        """
        self._finish_micro_batch()
        for work in self._over_replicas:
            self._replicas.wait(work)
        self._over_replicas, self._hooks_enabled = [], False
        for bucket in self._buckets:
            for weight, local_sum in bucket.local_sums.items():
                weight.grad = local_sum

    def _on_grad_accumulated(self, weight: Tensor) -> None:
        if self._hooks_enabled:
            assert isinstance(weight, nn.Parameter)
            self.mark_ready([weight])

    def _start_micro_batch(self) -> None:
        self._sent = 0
        for bucket in self._buckets:
            bucket.missing = set(bucket.ranges)

    def _finish_micro_batch(self) -> None:
        assert self._sent == len(self._buckets), "a weight got no gradient"
        self._finish_reduce(self._sent - 1)

    def _send(self) -> None:
        """Start to reduce the next bucket, once the previous one has arrived."""
        self._finish_reduce(self._sent - 1)
        bucket = self._buckets[self._sent]
        assert bucket.flat is not None
        self._in_flight = [
            self._shard.reduce_async(bucket.flat[segment], owner)
            for owner, segment in bucket.segments.items()
        ]
        self._sent += 1

    def _finish_reduce(self, number: int) -> None:
        """The bucket in flight has arrived: add this rank's part and free the bucket."""
        if not self._in_flight:
            return
        bucket = self._buckets[number]
        for work in self._in_flight:
            self._shard.wait(work)
        assert bucket.flat is not None
        if self._shard.rank in bucket.segments:
            bucket.local_sum += bucket.flat[bucket.segments[self._shard.rank]]
        bucket.flat, self._in_flight = None, []
        if self._last_micro_batch and self._replicas.ranks > 1 and len(bucket.local_sum):
            self._over_replicas.append(self._replicas.all_reduce_async(bucket.local_sum))


def _make_bucket(members: Sequence[nn.Parameter], owner_of: Mapping[nn.Parameter, int], rank: int) -> _Bucket:
    """A bucket of ``members``, as seen from rank ``rank`` of the shard axis."""
    ranges: dict[nn.Parameter, slice] = {}
    segments: dict[int, slice] = {}
    end = 0
    for weight in sorted(members, key=lambda weight: owner_of[weight]):
        begin, end = end, end + weight.numel()
        ranges[weight] = slice(begin, end)
        first = segments.get(owner_of[weight], ranges[weight]).start
        segments[owner_of[weight]] = slice(first, end)
    own = [weight for weight in ranges if owner_of[weight] == rank]
    local_sum = members[0].new_zeros(sum(weight.numel() for weight in own))
    views = torch.split(local_sum, [weight.numel() for weight in own]) if own else ()
    local_sums = {weight: view.view_as(weight) for weight, view in zip(own, views, strict=True)}
    return _Bucket(ranges, segments, local_sum, local_sums)
