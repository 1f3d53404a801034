"""Which part of each weight a rank holds, and which rank holds which where each has one holder.

Cutting a model over ranks leaves each rank some weights whole, some in part and some not at all. Whoever cuts says so
here, under canonical names, and whoever keeps, counts or saves weights reads it: the optimizer, the norm of all gradients,
checkpoints. So none of these knows by which parallelism a weight was cut.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import nn


class Slice(NamedTuple):
    """A box within a whole tensor."""

    whole: tuple[int, ...]
    """Shape of the whole tensor."""

    start: tuple[int, ...]
    """First index along each dim."""

    shape: tuple[int, ...]

    @property
    def where(self) -> tuple[slice, ...]:
        """What indexes the box in the whole."""
        return tuple(slice(first, first + size) for first, size in zip(self.start, self.shape, strict=True))


def whole(shape: Sequence[int]) -> Slice:
    """All of a tensor."""
    return Slice(tuple(shape), (0,) * len(shape), tuple(shape))


@dataclass(frozen=True)
class Part:
    """What this rank holds of one weight."""

    slice: Slice
    counted: bool = True
    """Of the ranks of the model axis that hold this very box, this one speaks for it: it adds the gradient to the norm of all
    and, with its data ranks, writes the state to checkpoints."""

    twin: bool = False
    """Whether another stage holds a copy, which must move alike, bit for bit, whatever weights lie beside either."""


@dataclass(frozen=True)
class Parts:
    """What this rank holds of a model."""

    held: Mapping[str, Part]
    """By canonical name, in the order of the forward pass."""

    order: Mapping[str, int]
    """Number of every weight of the whole model, in the order of its forward pass."""

    @property
    def twins(self) -> frozenset[str]:
        return frozenset(name for name, part in self.held.items() if part.twin)


def whole_parts(model: nn.Module) -> Parts:
    """Those of a model that is not cut."""
    names = dict(model.named_parameters())
    return Parts(
        {name: Part(whole(weight.shape)) for name, weight in names.items()},
        {name: number for number, name in enumerate(names)},
    )


def balance(sizes: Mapping[str, int], ranks: int, before: Collection[str] = ()) -> dict[str, int]:
    """Which of ``ranks`` owns each tensor: the largest first, each to the rank that has least so far (FP8-LM, algorithm 1).

    Tensors ``before`` come before larger ones: their owners do not depend on the others.
    """
    loads = [0] * ranks
    owners = {}
    for name in sorted(sizes, key=lambda name: (name not in before, -sizes[name], name)):
        owners[name] = loads.index(min(loads))
        loads[owners[name]] += sizes[name]
    return owners
