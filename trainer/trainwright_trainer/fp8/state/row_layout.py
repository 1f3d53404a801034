"""The positions of all weights' elements: one after the other, in rows of 128, so that one call processes all of them.

    rows of a tensor    its elements in row-major order; the last row is padded with zeros
    bucket              consecutive tensors, complete at about the same time of the backward pass
    slot                a tensor and its index in this order; vectors of P numbers, such as scales, are in it

The order is that of the backward pass: the model's last weight comes first. In a replicated layout every rank
has all rows, and each bucket is padded so that the ranks divide its rows. In a sharded layout (ZeRO over
entire tensors, FP8-LM section 3.3) each tensor belongs to one rank, a bucket's tensors are grouped by owner,
and a rank has the rows of its own tensors, bucket after bucket.

A row is also a block of 128 for scales by block, and the unit in which work is split. So no row has elements of two
tensors.

With tensor parallelism, a tensor here is the rank's slice of a weight. Buckets, order and
owners follow from the sizes of the entire weights, so that all ranks of a stage agree on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from trainwright_trainer.distributed.shard_spec import Slice, assign_owners
from trainwright_trainer.fp8.state.segments import Segments

ROW = 128
"""Elements in a row."""

BUCKET_ELEMENTS = 64 * 2**20
"""A bucket is closed at this size: a block of a model of 3B, 128 MiB of bfloat16 gradients."""


@dataclass(frozen=True)
class ParamSlot:
    """A weight, or this rank's slice of it, and its rows."""

    name: str
    box: Slice
    """Slice of the entire weight."""

    index: int
    owner: int
    """The rank with its rows in a sharded layout; unused in a replicated one."""

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

    slots: tuple[ParamSlot, ...]
    rank_rows: tuple[int, ...]
    """Rows that each rank sums; together all rows of the bucket, in the order of ranks."""

    local_range: slice
    """The bucket's rows among all rows of this rank."""

    @property
    def rows(self) -> int:
        return sum(self.rank_rows)

    @property
    def slot_indices(self) -> slice:
        return slice(self.slots[0].index, self.slots[-1].index + 1)

    def segments(self, shares: slice, device: torch.device) -> Segments:
        """The bucket's tensors within the rows of some ranks; padding belongs to the last tensor."""
        rows = [slot.rows for slot in self.slots]
        rows[-1] += self.rows - sum(rows)
        ends = list(accumulate(rows))
        first, last = sum(self.rank_rows[: shares.start]), sum(self.rank_rows[: shares.stop])
        inside = [min(max(end, first), last) for end in (0, *ends)]
        return Segments([end - begin for begin, end in pairwise(inside)], device)


@dataclass
class RowLayout:
    """All weights of a model, as rank ``rank`` of ``ranks`` sees them."""

    ranks: int
    rank: int
    sharded: bool
    buckets: list[Bucket]
    slots: list[ParamSlot] = field(init=False)
    """Slots in the order of their indices."""

    def __post_init__(self) -> None:
        self.slots = [slot for bucket in self.buckets for slot in bucket.slots]

    @property
    def local_slots(self) -> list[ParamSlot]:
        """Tensors whose rows this rank has, in the order of the rows."""
        return self.slots_of(self.rank)

    def slots_of(self, rank: int) -> list[ParamSlot]:
        return [slot for slot in self.slots if not self.sharded or slot.owner == rank]

    @property
    def local_rows(self) -> int:
        return int(self.buckets[-1].local_range.stop)

    def local_segments(self, device: torch.device) -> Segments:
        """All tensors; those of other ranks have no rows. Padding belongs to the tensor before it."""
        rows = [0] * len(self.slots)
        for bucket in self.buckets:
            mine = [slot for slot in bucket.slots if not self.sharded or slot.owner == self.rank]
            for slot in mine:
                rows[slot.index] = slot.rows
            if mine:
                rows[mine[-1].index] += (
                    bucket.local_range.stop - bucket.local_range.start - sum(item.rows for item in mine)
                )
        return Segments(rows, device)

    def first_rows(self) -> dict[str, int]:
        """Where each local tensor starts among the local rows."""
        first = {}
        for bucket in self.buckets:
            row = bucket.local_range.start
            for slot in bucket.slots:
                if not self.sharded or slot.owner == self.rank:
                    first[slot.name] = row
                    row += slot.rows
        return first


def make_row_layout(
    boxes: Mapping[str, Slice], ranks: int, rank: int, sharded: bool, bucket_elements: int = BUCKET_ELEMENTS
) -> RowLayout:
    """Assign rows to every weight's slice.

    Args:
        boxes: slices of the weights by name, in the order of the forward pass.
        ranks: number of ranks with the same slices.
        sharded: whether each tensor belongs to one of them.
        bucket_elements: counted in entire weights.
    """
    sizes = {name: _elements(box.full_shape) for name, box in boxes.items()}
    owners = assign_owners(sizes, ranks)
    buckets: list[Bucket] = []
    first, held = 0, 0
    for members in _bucketed(reversed(sizes.items()), bucket_elements):
        if sharded:
            members.sort(key=lambda name: owners[name])
        slots = [
            ParamSlot(name, boxes[name], first + index, owners[name], -(-_elements(boxes[name].shape) // ROW))
            for index, name in enumerate(members)
        ]
        shares = _rows_by_owner(slots, ranks) if sharded else _rows_evenly(slots, ranks)
        mine = shares[rank] if sharded else sum(shares)
        buckets.append(Bucket(tuple(slots), shares, slice(held, held + mine)))
        first, held = first + len(slots), held + mine
    return RowLayout(ranks, rank, sharded, buckets)


def view_of(rows: Tensor, first: int, slot: ParamSlot) -> Tensor:
    """The elements of a weight whose rows start at ``first``, in its shape."""
    return rows.view(-1)[first * ROW : first * ROW + slot.elements].view(slot.shape)


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


def _rows_by_owner(slots: Sequence[ParamSlot], ranks: int) -> tuple[int, ...]:
    return tuple(sum(slot.rows for slot in slots if slot.owner == rank) for rank in range(ranks))


def _rows_evenly(slots: Sequence[ParamSlot], ranks: int) -> tuple[int, ...]:
    rows = sum(slot.rows for slot in slots)
    return (-(-rows // ranks),) * ranks
