"""How far a layout's training may be from one process, and how far it is.

A layout adds up the same numbers in another order. How far that carries is measured, by *controls* in one process: one
takes the same batches in micro batches of two sequences in place of one, which is other orders of adding where weights
get their gradients, and in FP8 other scales; one is in the next finer precision, which rounds nowhere that the cell does.
Bounds are multiples of the larger, and none is below what rounding alone explains.

What rounding carries is no steady growth: a weight's gradient is a sum over tokens that point different ways, and where it
is small the error of its summands is not. So every weight is compared, in every step, with the controls of that weight
in that step. Losses and norms are single numbers, whose controls cross zero now and then: of them the largest up to the
step counts.

A number that is not one fails, wherever it stands: nothing here takes a maximum that would drop it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.parity.cases import TOKENS, Cell
from tests.parity.learning import Piece, Told
from trainwright.contracts.parallelism_spec import Place

Numbers = NDArray[np.float64]
Errors = dict[str, float]
Gradients = dict[str, NDArray[np.float32]]
Steps = dict[int, Gradients]


class Learned(NamedTuple):
    """What all ranks of a cell know together."""

    losses: list[float]
    norms: list[float]
    gradients: Steps
    """Whole ones."""


class Apart(NamedTuple):
    """Two trainings of as many steps."""

    losses: Numbers
    """Nats a token, by step."""

    norms: Numbers
    """Relative, by step."""

    gradients: dict[int, Errors]
    """By step and weight, relative to the second training's in that step, in the L2 norm."""


class Distance(NamedTuple):
    """Of a whole training."""

    loss: float
    norm: float
    first: float
    """Of a gradient in the first step."""

    last: float
    """Of a gradient in later ones."""


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


def apart(one: Learned, other: Learned) -> Apart:
    """In losses and norms of all steps, and in the gradients of those that both know."""
    assert len(one.losses) == len(other.losses), "not as many steps"
    steps = sorted(one.gradients.keys() & other.gradients.keys())
    return Apart(
        np.abs(np.subtract(one.losses, other.losses)),
        np.abs(np.divide(one.norms, other.norms) - 1),
        {step: _errors(one.gradients[step], other.gradients[step]) for step in steps},
    )


def _errors(ours: Gradients, theirs: Gradients) -> Errors:
    assert ours.keys() == theirs.keys(), "not the same weights have gradients"
    with np.errstate(invalid="ignore"):  # infinities become what is no number, and that is complained about
        return {
            name: float(np.linalg.norm(ours[name] - whole) / np.linalg.norm(whole))
            for name, whole in theirs.items()
        }


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
of a layer; the finer precision makes none of the ten, so that its control counts more of them. That at least half of what
two tensor ranks are off is this rounding is shown by ``tests.parity.partial_sums``."""

LATER = 3.0
"""Times the control, after steps that were taken from gradients that differ: what they differ by adds up in either way."""


def control(precision: str, alone: dict[str, Learned], recut: dict[str, Learned]) -> Apart:
    """How far rounding of ``precision`` carries one process: in other micro batches, or beside the next finer precision."""
    finer = {"fp32": "fp32", "bf16": "fp32"}.get(precision, "bf16")
    one, two = (apart(other, alone[precision]) for other in (recut[precision], alone[finer]))
    return Apart(
        np.maximum.accumulate(np.maximum(one.losses, two.losses)),
        np.maximum.accumulate(np.maximum(one.norms, two.norms)),
        {step: _larger(errors, two.gradients[step]) for step, errors in one.gradients.items()},
    )


def _larger(one: Errors, other: Errors) -> Errors:
    return {name: float(np.maximum(error, other[name])) for name, error in one.items()}


def bound(control: Apart, loss: float) -> Apart:
    """How far a layout may be from one process, whose first loss is ``loss``.

    Raises:
        AssertionError: a control is infinite or no number, and would allow anything.
    """
    errors_of_all = [error for errors in control.gradients.values() for error in errors.values()]
    assert np.isfinite([*control.losses, *control.norms, *errors_of_all]).all(), "a control is not finite"
    return Apart(
        np.maximum(LATER * control.losses, FLOAT32_LOSS * loss),
        np.maximum(LATER * control.norms, FLOAT32),
        {
            step: {
                name: float(np.maximum((FIRST if step == 1 else LATER) * error, FLOAT32))
                for name, error in errors.items()
            }
            for step, errors in control.gradients.items()
        },
    )


def worst(found: Apart, allowed: Apart) -> tuple[Distance, Distance]:
    """Of each kind what comes nearest to its bound or is farthest beyond it, and that bound."""
    first, *later = sorted(found.gradients)
    kinds = [
        (found.losses, allowed.losses),
        (found.norms, allowed.norms),
        _of_weights(found, allowed, [first]),
        _of_weights(found, allowed, later or [first]),
    ]
    at = [int(np.argmax(numbers / limits)) for numbers, limits in kinds]  # the first NaN, where there is one
    ours, limits = (
        Distance(*(float(pair[side][index]) for pair, index in zip(kinds, at, strict=True)))
        for side in (0, 1)
    )
    return ours, limits


def _of_weights(found: Apart, allowed: Apart, steps: Sequence[int]) -> tuple[Numbers, Numbers]:
    """Errors and limits of all weights in ``steps``, in one order."""
    pairs = [
        (error, allowed.gradients[step][name])
        for step in steps
        for name, error in found.gradients[step].items()
    ]
    return np.array([error for error, _ in pairs]), np.array([limit for _, limit in pairs])


def complaints(found: Apart, allowed: Apart) -> list[str]:
    """What is too far, in words."""
    return [
        f"{name}: {value:.1e} off, allowed {limit:.1e}"
        for name, value, limit in zip(Distance._fields, *worst(found, allowed), strict=True)
        if not value <= limit
    ]


def unmissed(one: Learned, allowed: Apart) -> list[str]:
    """Weights whose gradient could be nothing in the last step, and a cell would pass: a control of the bounds."""
    last = max(one.gradients)
    found = []
    for name, whole in one.gradients[last].items():
        without = {last: one.gradients[last] | {name: np.zeros_like(whole)}}
        if not complaints(apart(one._replace(gradients=without), one), allowed):
            found.append(name)
    return found


def judged(cell: Cell, learned: Learned, one: Learned, allowed: Apart, like: Learned | None) -> list[str]:
    """What is wrong with a cell; nothing where it learns what it must."""
    wrong = complaints(apart(learned, one), allowed)
    if like is not None and not same_bits(learned, like):
        wrong.append(f"other bits than {cell.like}")
    return wrong
