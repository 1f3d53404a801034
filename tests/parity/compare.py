"""How far a layout's training may be from one process, and how far it is.

A layout adds up the same numbers in another order. How far that carries is measured, by *controls* in one process: one
takes the same batches in micro batches of two sequences in place of one, which is other orders of adding where weights
get their gradients, and in FP8 other scales; one is in the next finer precision, which rounds nowhere that the cell does.
Bounds are multiples of the larger, and none is below what rounding alone explains.

What rounding carries is no steady growth. A weight's gradient is a sum over tokens that point different ways: from one
step to the next the first layers' values have 0.54 and then 0.07, and where it is small the error of its summands is not.
So an error is compared with the largest gradient that the weight has had, and a control counts with its largest error of
all steps, for a cell may be in its last one where the control has been at any. (Compared with the gradient of the very
step, one process in bfloat16 is 0.03 to 0.57 from float32 between the steps 14 and 17 of the same run.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.parity.cases import TOKENS, Cell
from tests.parity.learning import Piece, Told
from trainwright.contracts.parallelism_spec import Place

Gradients = dict[str, NDArray[np.float32]]
Steps = dict[int, Gradients]


class Learned(NamedTuple):
    """What all ranks of a cell know together."""

    losses: list[float]
    norms: list[float]
    gradients: Steps
    """Whole ones."""


class Distance(NamedTuple):
    """Between two trainings of as many steps: the largest over steps and weights."""

    loss: float
    """Nats a token."""

    norm: float
    """Relative."""

    first: float
    """Of a gradient in the first step, relative, in the L2 norm."""

    last: float
    """Of a gradient in later steps that both know, relative to the largest one of the same weight in any step."""


def together(told: Sequence[Told]) -> Learned:
    """Assemble whole gradients from the ranks' pieces.

    Raises:
        AssertionError: ranks do not agree on a number that all must know alike, or leave a gap.
    """
    for one, other in pairwise(told):
        assert one.losses == other.losses, "ranks differ in their losses"
        assert one.norms == other.norms, "ranks differ in their norms"
    lines: dict[Place, Told] = {}
    for one in told:
        first = lines.setdefault(one.line, one)
        assert one.own_losses == first.own_losses, "ranks of a tensor axis differ in their own losses"
    steps = told[0].gradients
    return Learned(
        told[0].losses,
        told[0].norms,
        {step: _assembled([one.gradients[step] for one in told]) for step in steps},
    )


def _assembled(told: Sequence[dict[str, Piece]]) -> Gradients:
    wholes: Gradients = {}
    for name, (box, numbers) in (piece for one in told for piece in one.items()):
        whole = wholes.setdefault(name, np.full(box.whole, np.nan, np.float32))
        there = whole[box.where]
        assert bool(np.all(np.isnan(there) | (there == numbers))), f"ranks differ in the gradient of {name}"
        whole[box.where] = numbers
    for name, whole in wholes.items():
        assert not np.isnan(whole).any(), f"the parts of the gradient of {name} do not fill it"
    return wholes


def distance(one: Learned, other: Learned) -> Distance:
    """``one`` knows the gradients of some steps, the first and the last at least, of those that ``other`` knows."""
    steps = sorted(one.gradients)
    largest = _sizes(other.gradients.values())
    return Distance(
        max(abs(a - b) for a, b in zip(one.losses, other.losses, strict=True)),
        max(abs(a / b - 1) for a, b in zip(one.norms, other.norms, strict=True)),
        _farthest(one, other, steps[0], _sizes([other.gradients[steps[0]]])),
        max(_farthest(one, other, step, largest) for step in steps[1:] or steps),
    )


def _sizes(gradients: Iterable[Gradients]) -> dict[str, float]:
    """The largest norm of each weight's gradient."""
    sizes: dict[str, float] = {}
    for name, whole in (named for one in gradients for named in one.items()):
        sizes[name] = max(sizes.get(name, 0.0), float(np.linalg.norm(whole)))
    return sizes


def _farthest(one: Learned, other: Learned, step: int, sizes: dict[str, float]) -> float:
    ours, theirs = one.gradients[step], other.gradients[step]
    assert ours.keys() == theirs.keys(), "not the same weights have gradients"
    return max(float(np.linalg.norm(ours[name] - theirs[name])) / size for name, size in sizes.items())


def same_bits(one: Learned, other: Learned) -> bool:
    """Losses and gradients. The norm is a sum over ranks of its own, and nothing is clipped by it in such cells."""
    return one.losses == other.losses and all(
        np.array_equal(whole, other.gradients[step][name])
        for step, gradients in one.gradients.items()
        for name, whole in gradients.items()
    )


PRODUCTS = 10 * 6
"""That follow each other in the model's backward pass: about ten in each of six layers."""

# Each adds up at most as many numbers as the batch has tokens, so that another order changes at most this much of the sum
# of their magnitudes.
FLOAT32 = PRODUCTS * TOKENS * 2.0**-24

# A loss is a mean over the batch's tokens of logarithms of sums over 256 numbers.
FLOAT32_LOSS = (TOKENS + 256) * 2.0**-24

FIRST = 2.0
"""Times the control. Both trainings are an exact one and rounding, and as far from it as the control says: at most twice that
from each other. A matrix that is cut rounds its partial sums as well, 3 roundings in place of 1 at four of the ten products
of a layer; the finer precision makes none of the ten, so that its control counts more of them. That nothing else happens
in a cut matrix is shown by ``tests.parity.partial_sums``."""

LATER = 4.0
"""Times the control, after steps that were taken from gradients that differ: what they differ by adds up in either way. In
bfloat16, of 4 seeds and 5, 10, 15 and 20 steps each, two tensor ranks were at most 1.5 controls from one process."""


def control(precision: str, alone: dict[str, Learned], recut: dict[str, Learned]) -> Distance:
    """How far rounding of ``precision`` carries one process: in other micro batches, or beside the next finer precision."""
    finer = {"fp32": "fp32", "bf16": "fp32"}.get(precision, "bf16")
    found = (distance(recut[precision], alone[precision]), distance(alone[finer], alone[precision]))
    return Distance(*map(max, *found))


def bound(control: Distance, loss: float) -> Distance:
    """How far a layout may be from one process, whose first loss is ``loss``."""
    return Distance(
        max(LATER * control.loss, FLOAT32_LOSS * loss),
        max(LATER * control.norm, FLOAT32),
        max(FIRST * control.first, FLOAT32),
        max(LATER * control.last, FLOAT32),
    )


def complaints(found: Distance, allowed: Distance) -> list[str]:
    """What is too far, in words."""
    return [
        f"{name}: {value:.1e} off, allowed {limit:.1e}"
        for name, value, limit in zip(Distance._fields, found, allowed, strict=True)
        if not value <= limit
    ]


def judged(cell: Cell, learned: Learned, one: Learned, allowed: Distance, like: Learned | None) -> list[str]:
    """What is wrong with a cell; nothing where it learns what it must."""
    wrong = complaints(distance(learned, one), allowed)
    if like is not None and not same_bits(learned, like):
        wrong.append(f"other bits than {cell.like}")
    return wrong
