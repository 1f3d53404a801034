"""Which part of each weight a rank has, and which rank owns each weight that has a single owner.

If a model is sharded over ranks, each rank has some weights in full, some in part and some not at all. Each kind of
parallelism records that here, under canonical names, for the code that updates, counts or saves weights: optimizers,
the gradient norm, checkpoints. So none of these needs to know which parallelism sharded a weight.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import nn


class Slice(NamedTuple):
    """A box within a tensor."""

    full_shape: tuple[int, ...]
    """Shape of the entire tensor."""

    offset: tuple[int, ...]
    """First index along each dim."""

    shape: tuple[int, ...]

    @property
    def slices(self) -> tuple[slice, ...]:
        """Indexes the box in the entire tensor."""
        return tuple(slice(first, first + size) for first, size in zip(self.offset, self.shape, strict=True))


def full_slice(shape: Sequence[int]) -> Slice:
    """The slice that is the entire tensor."""
    return Slice(tuple(shape), (0,) * len(shape), tuple(shape))


def row_shard(box: Slice, rank: int, ranks: int) -> Slice:
    """Rank ``rank``'s rows of ``box``: equal ranges, the last ones shorter or empty."""
    length = -(-box.shape[0] // ranks)
    first = min(rank * length, box.shape[0])
    rows = min(length, box.shape[0] - first)
    return Slice(box.full_shape, (box.offset[0] + first, *box.offset[1:]), (rows, *box.shape[1:]))


@dataclass(frozen=True)
class ShardSpec:
    """This rank's part of one weight."""

    slice: Slice
    is_primary: bool = True
    """Whether this rank counts among the ranks of the model axis that have this slice: it adds the slice's
    gradient to the norm and, with its data ranks, writes its state to checkpoints."""

    has_partial_gradient: bool = False
    """Whether all tensor ranks have it in full, and each computes a term of its gradient, which they sum."""

    is_tied_replica: bool = False
    """Whether another stage has a copy, which must stay identical bit for bit, independently of the other weights of
    both stages."""


@dataclass(frozen=True)
class ShardSpecs:
    """This rank's part of a model."""

    local: Mapping[str, ShardSpec]
    """Specs by canonical name, in the order of the forward pass."""

    forward_order: Mapping[str, int]
    """Index of every weight of the entire model, in the order of its forward pass."""

    @property
    def tied_replicas(self) -> frozenset[str]:
        return frozenset(name for name, part in self.local.items() if part.is_tied_replica)

    @property
    def partial_gradients(self) -> list[str]:
        """Weights whose gradients the tensor ranks sum."""
        return [name for name, part in self.local.items() if part.has_partial_gradient]


def unsharded_specs(model: nn.Module) -> ShardSpecs:
    """Specs of a model that is not sharded."""
    names = dict(model.named_parameters())
    return ShardSpecs(
        {name: ShardSpec(full_slice(weight.shape)) for name, weight in names.items()},
        {name: number for number, name in enumerate(names)},
    )


def assign_owners(sizes: Mapping[str, int], ranks: int, first: Collection[str] = ()) -> dict[str, int]:
    """The owner of each tensor among ``ranks``: largest tensor first, each to the rank with the least so far
    (FP8-LM, algorithm 1).

    Tensors in ``first`` come before larger ones, so that their owners do not depend on the others.
    """
    loads = [0] * ranks
    owners = {}
    for name in sorted(sizes, key=lambda name: (name not in first, -sizes[name], name)):
        owners[name] = loads.index(min(loads))
        loads[owners[name]] += sizes[name]
    return owners
