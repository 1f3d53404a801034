"""Where the elements of all weights lie: one after the other, in rows of 128, so that one call works on all of them.

    rows of a tensor    its elements in row-major order; the last row is filled up with zeros
    bucket              tensors that follow each other, complete at about the same time of the backward pass
    place               a tensor's number in this order; vectors of P numbers, such as scales, are in the order of places

The order is that of the backward pass: the model's last weight comes first. In a whole layout every rank holds all
rows, and each bucket is filled up so that its rows divide by the ranks. In a cut layout (ZeRO over whole tensors,
FP8-LM section 3.3) each tensor belongs to one rank, a bucket's tensors stand together by owner, and the rows that a
rank holds are those of its own tensors, bucket after bucket.

A row is also a block of 128 for scales by block, and the unit in which work is cut: no row holds two tensors.

Where weights are cut over a tensor axis, a tensor here is the rank's slice of one. What follows from sizes (buckets,
order, owners) follows from those of the whole weights, so that all ranks of a stage agree on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from trainwright_trainer.fp8.stretches import Stretches
from trainwright_trainer.parts import Slice, balance

ROW = 128
"""Elements in a row."""

BUCKET_ELEMENTS = 64 * 2**20
"""A bucket is closed when it has so many: a block of a model of 3B, 128 MiB of bfloat16 gradients."""


@dataclass(frozen=True)
class Tenant:
    """A weight, or the slice of it that is here, and its rows."""

    name: str
    box: Slice
    """Which part of the whole weight."""

    place: int
    owner: int
    """The rank that holds its rows in a cut layout; meaningless in a whole one."""

    rows: int

    @property
    def shape(self) -> tuple[int, ...]:
        return self.box.shape

    @property
    def elements(self) -> int:
        return _elements(self.shape)


@dataclass(frozen=True)
class Bucket:
    """Tensors that are reduced together."""

    tenants: tuple[Tenant, ...]
    shares: tuple[int, ...]
    """Rows whose sums each rank computes; together all rows of the bucket, in the order of ranks."""

    held: slice
    """Where the bucket's result lies among the rows that this rank holds."""

    @property
    def rows(self) -> int:
        return sum(self.shares)

    @property
    def places(self) -> slice:
        return slice(self.tenants[0].place, self.tenants[-1].place + 1)

    def stretches(self, shares: slice, device: torch.device) -> Stretches:
        """The bucket's tensors within the rows of some of the shares; filling belongs to the last tensor."""
        rows = [tenant.rows for tenant in self.tenants]
        rows[-1] += self.rows - sum(rows)
        ends = list(accumulate(rows))
        first, last = sum(self.shares[: shares.start]), sum(self.shares[: shares.stop])
        inside = [min(max(end, first), last) for end in (0, *ends)]
        return Stretches([end - begin for begin, end in pairwise(inside)], device)


@dataclass
class Layout:
    """All weights of a model, as rank ``rank`` of ``ranks`` sees them."""

    ranks: int
    rank: int
    cut: bool
    buckets: list[Bucket]
    tenants: list[Tenant] = field(init=False)
    """In the order of places."""

    def __post_init__(self) -> None:
        self.tenants = [tenant for bucket in self.buckets for tenant in bucket.tenants]

    @property
    def held(self) -> list[Tenant]:
        """Tensors whose rows this rank holds, in the order of the rows."""
        return self.held_by(self.rank)

    def held_by(self, rank: int) -> list[Tenant]:
        return [tenant for tenant in self.tenants if not self.cut or tenant.owner == rank]

    @property
    def held_rows(self) -> int:
        return int(self.buckets[-1].held.stop)

    def held_stretches(self, device: torch.device) -> Stretches:
        """All tensors, those that other ranks hold without rows; filling belongs to the tensor before it."""
        rows = [0] * len(self.tenants)
        for bucket in self.buckets:
            mine = [one for one in bucket.tenants if not self.cut or one.owner == self.rank]
            for tenant in mine:
                rows[tenant.place] = tenant.rows
            if mine:
                rows[mine[-1].place] += bucket.held.stop - bucket.held.start - sum(one.rows for one in mine)
        return Stretches(rows, device)

    def first_rows(self) -> dict[str, int]:
        """Where each held tensor begins among the held rows."""
        first = {}
        for bucket in self.buckets:
            row = bucket.held.start
            for tenant in bucket.tenants:
                if not self.cut or tenant.owner == self.rank:
                    first[tenant.name] = row
                    row += tenant.rows
        return first


def lay_out(
    boxes: Mapping[str, Slice], ranks: int, rank: int, cut: bool, bucket_elements: int = BUCKET_ELEMENTS
) -> Layout:
    """Give every weight's slice its rows.

    Args:
        boxes: of the weights by name, in the order of the forward pass.
        ranks: those that hold the same slices.
        cut: whether each tensor belongs to one of them.
        bucket_elements: counted in those of whole weights.
    """
    sizes = {name: _elements(box.whole) for name, box in boxes.items()}
    owners = balance(sizes, ranks)
    buckets: list[Bucket] = []
    place, held = 0, 0
    for members in _bucketed(reversed(sizes.items()), bucket_elements):
        if cut:
            members.sort(key=lambda name: owners[name])
        tenants = [
            Tenant(name, boxes[name], place + index, owners[name], -(-_elements(boxes[name].shape) // ROW))
            for index, name in enumerate(members)
        ]
        shares = _by_owner(tenants, ranks) if cut else _evenly(tenants, ranks)
        mine = shares[rank] if cut else sum(shares)
        buckets.append(Bucket(tuple(tenants), shares, slice(held, held + mine)))
        place, held = place + len(tenants), held + mine
    return Layout(ranks, rank, cut, buckets)


def view_of(rows: Tensor, first: int, tenant: Tenant) -> Tensor:
    """The elements of a weight whose rows begin at ``first``, in its shape."""
    return rows.view(-1)[first * ROW : first * ROW + tenant.elements].view(tenant.shape)


def _elements(shape: Sequence[int]) -> int:
    return torch.Size(shape).numel()


def _bucketed(sizes: Iterable[tuple[str, int]], bucket_elements: int) -> Iterator[list[str]]:
    bucket: list[str] = []
    elements = 0
    for name, size in sizes:
        bucket.append(name)
        elements += size
        if elements >= bucket_elements:
            yield bucket
            bucket, elements = [], 0
    if bucket:
        yield bucket


def _by_owner(tenants: Sequence[Tenant], ranks: int) -> tuple[int, ...]:
    return tuple(sum(tenant.rows for tenant in tenants if tenant.owner == rank) for rank in range(ranks))


def _evenly(tenants: Sequence[Tenant], ranks: int) -> tuple[int, ...]:
    rows = sum(tenant.rows for tenant in tenants)
    return (-(-rows // ranks),) * ranks
