"""Gradients that only the owner of a weight keeps (ZeRO stage 2, Rajbhandari et al. 2020).

A backward pass makes gradients from the model's end to its start. Each moves into a flat bucket and gives up its own memory;
a full bucket is added up at the owners of its tensors (``owners``) while the next one fills, and its memory is
given back. An owner adds what it gets to its share, round after round; where data ranks are more than the ranks of a shard
axis, shares are added up over the replicas in the last round.

    owns   each rank the gradients of its tensors      moves   every gradient, once a round, to its owner
    memory  own share + two buckets, one that fills and one that travels

In a pipeline gradients of several micro batches are on their way at once. There autograd keeps adding to the whole
gradients of a stage until ``complete`` names them, and only then do they go: the share is what stays, not the peak.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainwright_trainer.mesh import Mesh
from trainwright_trainer.parallel.data.replicate import in_buckets


@dataclass
class _Bucket:
    """Weights whose gradients travel together, those of one owner side by side."""

    places: dict[nn.Parameter, slice]
    """Where the elements of each lie."""

    segments: dict[int, slice]
    """Where those of each owner lie."""

    share: Tensor
    """Sums of the own elements."""

    shares: dict[nn.Parameter, Tensor]
    """The same by weight."""

    missing: set[nn.Parameter] = field(default_factory=set)
    flat: Tensor | None = None
    """Of this round, while it fills and travels."""

    def take(self, weight: nn.Parameter) -> None:
        """Move the gradient of ``weight`` in here."""
        assert weight.grad is not None, "a weight got no gradient"
        if self.flat is None:
            self.flat = weight.new_empty(sum(member.numel() for member in self.places))
        self.flat[self.places[weight]] = weight.grad.flatten()
        weight.grad = None
        self.missing.discard(weight)


class GradientShares:
    """Sums of the gradients of ``weights`` over the data ranks, each at its owner."""

    def __init__(
        self,
        weights: Mapping[str, nn.Parameter],
        owners: Mapping[str, int],
        mesh: Mesh,
        every_round: bool,
        twins: Collection[str] = (),
    ) -> None:
        """Lay out the buckets, and listen.

        Args:
            owners: of the weights, places on the shard axis.
            every_round: gradients go in each backward pass, as autograd's hooks tell of them.
            twins: weights that get a bucket each; see ``GradientBuckets``.
        """
        self._shard, self._replicas = mesh.shard, mesh.replicas
        self._every_round = every_round
        self._listening, self._last = False, False
        owner_of = {weight: owners[name] for name, weight in weights.items()}
        self._buckets = [
            _laid_out(members, owner_of, self._shard.rank)
            for members in in_buckets(reversed(list(weights.values())), {weights[name] for name in twins})
        ]
        self._bucket_of = {weight: bucket for bucket in self._buckets for weight in bucket.places}
        for weight in owner_of:
            weight.register_post_accumulate_grad_hook(self._is_added_to)  # type: ignore[no-untyped-call]
        self._sent = 0
        self._travelling: list[dist.Work] = []
        self._over_replicas: list[dist.Work] = []

    def clear(self) -> None:
        """Forget the gradients of the step before; the first round begins."""
        for bucket in self._buckets:
            bucket.share.zero_()
            for weight in bucket.places:
                weight.grad = None
        self._listening, self._last = self._every_round, not self._every_round
        self._open_round()

    def end_round(self) -> None:
        """A round that is not the last has ended. In a pipeline that says nothing of gradients."""
        if self._every_round:
            self._close_round()
            self._open_round()

    def send_as_ready(self) -> None:
        """The last round begins."""
        self._listening, self._last = True, True

    def complete(self, weights: Iterable[nn.Parameter]) -> None:
        """The gradients of ``weights`` are there; buckets that are full now go."""
        for weight in weights:
            self._bucket_of[weight].take(weight)
        while self._sent < len(self._buckets) and not self._buckets[self._sent].missing:
            self._send()

    def wait(self) -> None:
        """Return when the owned weights have the sums over all ranks and rounds as their gradients, and others none."""
        self._close_round()
        for work in self._over_replicas:
            self._replicas.finish(work)
        self._over_replicas, self._listening = [], False
        for bucket in self._buckets:
            for weight, share in bucket.shares.items():
                weight.grad = share

    def _is_added_to(self, weight: Tensor) -> None:
        if self._listening:
            assert isinstance(weight, nn.Parameter)
            self.complete([weight])

    def _open_round(self) -> None:
        self._sent = 0
        for bucket in self._buckets:
            bucket.missing = set(bucket.places)

    def _close_round(self) -> None:
        assert self._sent == len(self._buckets), "a weight got no gradient"
        self._settle(self._sent - 1)

    def _send(self) -> None:
        """Begin to add up the next bucket, when the one before it has arrived."""
        self._settle(self._sent - 1)
        bucket = self._buckets[self._sent]
        assert bucket.flat is not None
        self._travelling = [
            self._shard.start_sum_at(bucket.flat[segment], owner)
            for owner, segment in bucket.segments.items()
        ]
        self._sent += 1

    def _settle(self, number: int) -> None:
        """The bucket that travels has arrived: take the own part and give its memory back."""
        if not self._travelling:
            return
        bucket = self._buckets[number]
        for work in self._travelling:
            self._shard.finish(work)
        assert bucket.flat is not None
        if self._shard.rank in bucket.segments:
            bucket.share += bucket.flat[bucket.segments[self._shard.rank]]
        bucket.flat, self._travelling = None, []
        if self._last and self._replicas.ranks > 1 and len(bucket.share):
            self._over_replicas.append(self._replicas.start_sum(bucket.share))


def _laid_out(members: Sequence[nn.Parameter], owner_of: Mapping[nn.Parameter, int], rank: int) -> _Bucket:
    """A bucket of ``members``, seen from rank ``rank`` of the shard axis."""
    places: dict[nn.Parameter, slice] = {}
    segments: dict[int, slice] = {}
    end = 0
    for weight in sorted(members, key=lambda weight: owner_of[weight]):
        begin, end = end, end + weight.numel()
        places[weight] = slice(begin, end)
        first = segments.get(owner_of[weight], places[weight]).start
        segments[owner_of[weight]] = slice(first, end)
    own = [weight for weight in places if owner_of[weight] == rank]
    share = members[0].new_zeros(sum(weight.numel() for weight in own))
    pieces = torch.split(share, [weight.numel() for weight in own]) if own else ()
    shares = {weight: piece.view_as(weight) for weight, piece in zip(own, pieces, strict=True)}
    return _Bucket(places, segments, share, shares)
