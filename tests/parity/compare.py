"""Compares a layout's training with that of one process, and derives how far apart they may be.

A layout sums the same numbers in another order. The effect of this is measured by *controls* in one process.
One takes the same batches in micro batches of two sequences instead of one, which gives other orders of
summation for weight gradients and, in FP8, other scales. The other uses the next finer precision, which
rounds nowhere that the cell does. Bounds are multiples of the larger control, and none is below what rounding
alone explains.

Rounding errors do not grow steadily: a weight's gradient is a sum over tokens that point in different
directions, and where it is small, the error of its terms is not. So every weight is compared in every step
with the controls of that weight in that step. Losses and norms are single numbers whose controls occasionally
cross zero: for them the largest control up to the step counts.

A NaN fails wherever it occurs: nothing here takes a maximum that would drop it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.parity.cases import TOKENS, Cell
from tests.parity.learning import RankResult, TensorShard
from trainwright.contracts.parallelism_spec import Coordinates

Numbers = NDArray[np.float64]
Errors = dict[str, float]
Gradients = dict[str, NDArray[np.float32]]
Steps = dict[int, Gradients]


class Learned(NamedTuple):
    """What all ranks of a cell report together."""

    losses: list[float]
    norms: list[float]
    gradients: Steps
    """Full gradients, assembled from all ranks."""


class Apart(NamedTuple):
    """Differences between two trainings of equally many steps."""

    losses: Numbers
    """Nats per token, by step."""

    norms: Numbers
    """Relative, by step."""

    gradients: dict[int, Errors]
    """Relative to the second training in the same step, in the L2 norm, by step and weight."""


class Distance(NamedTuple):
    """Largest differences over a complete training."""

    loss: float
    norm: float
    first: float
    """Gradients in the first step."""

    last: float
    """Gradients in later steps."""


def together(results: Sequence[RankResult]) -> Learned:
    """Assemble full gradients from the ranks' slices.

    Raises:
        AssertionError: ranks disagree on a value that must be the same on all, or leave a gap.
    """
    for one, other in pairwise(results):
        assert one.losses == other.losses, "ranks differ in their losses"
        assert one.norms == other.norms, "ranks differ in their norms"
    lines: dict[Coordinates, RankResult] = {}
    for item in results:
        first = lines.setdefault(item.line, item)
        assert item.own_losses == first.own_losses, "ranks of a tensor axis differ in their own losses"
    steps = results[0].gradients
    return Learned(
        results[0].losses,
        results[0].norms,
        {step: _assembled([result.gradients[step] for result in results]) for step in steps},
    )


def _assembled(results: Sequence[dict[str, TensorShard]]) -> Gradients:
    wholes: Gradients = {}
    for name, (box, numbers) in (shard for result in results for shard in result.items()):
        whole = wholes.setdefault(name, np.full(box.full_shape, np.nan, np.float32))
        there = whole[box.slices]
        assert bool(np.all(np.isnan(there) | (there == numbers))), f"ranks differ in the gradient of {name}"
        whole[box.slices] = numbers
    for name, whole in wholes.items():
        assert not np.isnan(whole).any(), f"the parts of the gradient of {name} do not fill it"
    return wholes


def apart(one: Learned, other: Learned) -> Apart:
    """Differences in losses and norms of all steps, and in gradients of the steps that both report."""
    assert len(one.losses) == len(other.losses), "not as many steps"
    steps = sorted(one.gradients.keys() & other.gradients.keys())
    return Apart(
        np.abs(np.subtract(one.losses, other.losses)),
        np.abs(np.divide(one.norms, other.norms) - 1),
        {step: _errors(one.gradients[step], other.gradients[step]) for step in steps},
    )


def _errors(ours: Gradients, theirs: Gradients) -> Errors:
    assert ours.keys() == theirs.keys(), "not the same weights have gradients"
    with np.errstate(invalid="ignore"):  # infinities become NaN, which is reported
        return {
            name: float(np.linalg.norm(ours[name] - whole) / np.linalg.norm(whole))
            for name, whole in theirs.items()
        }


def same_bits(one: Learned, other: Learned) -> bool:
    """Compare losses and gradients.
    The norm is summed over ranks separately and clips nothing in such cells."""
    return one.losses == other.losses and all(
        np.array_equal(whole, other.gradients[step][name])
        for step, gradients in one.gradients.items()
        for name, whole in gradients.items()
    )


PRODUCTS = 10 * 6
"""Matmuls that follow each other in the model's backward pass: about ten in each of six layers."""

# Each sums at most as many numbers as the batch has tokens, so another order changes at most this fraction of
# the sum of their magnitudes.
FLOAT32 = PRODUCTS * TOKENS * 2.0**-24

# A loss is a mean over the batch's tokens of logarithms of sums over 256 numbers.
FLOAT32_LOSS = (TOKENS + 256) * 2.0**-24

FIRST = 2.0
"""Times the control. Both trainings equal an exact one plus rounding and are as far from it as the control
says: at most twice that from each other. A sharded matrix also rounds its partial sums, 3 roundings instead
of 1 in four of the ten matmuls of a layer. The finer precision makes none of the ten, so its control counts
more of them. ``tests.parity.partial_sums`` shows that this rounding accounts for at least half of the error
of two tensor ranks."""

LATER = 3.0
"""Times the control, for steps that follow different gradients:
the differences may add up in either direction."""


def control(precision: str, alone: dict[str, Learned], recut: dict[str, Learned]) -> Apart:
    """How far rounding of ``precision`` moves one process:
    in other micro batches, or from the next precision."""
    one, two = (apart(other, alone[precision]) for other in (recut[precision], alone[finer(precision)]))
    return Apart(
        np.maximum.accumulate(np.maximum(one.losses, two.losses)),
        np.maximum.accumulate(np.maximum(one.norms, two.norms)),
        {step: _larger(errors, two.gradients[step]) for step, errors in one.gradients.items()},
    )


def finer(precision: str) -> str:
    """The next finer precision."""
    return {"fp32": "fp32", "bf16": "fp32"}.get(precision, "bf16")


def _larger(one: Errors, other: Errors) -> Errors:
    return {name: float(np.maximum(error, other[name])) for name, error in one.items()}


def bound(control: Apart, loss: float) -> Apart:
    """How far a layout may be from one process whose first loss is ``loss``.

    Raises:
        AssertionError: a control is infinite or NaN and would allow anything.
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
    """The difference of each kind that is nearest to its bound or farthest beyond it, and that bound."""
    first, *later = sorted(found.gradients)
    kinds = [
        (found.losses, allowed.losses),
        (found.norms, allowed.norms),
        _of_weights(found, allowed, [first]),
        _of_weights(found, allowed, later or [first]),
    ]
    at = [int(np.argmax(numbers / limits)) for numbers, limits in kinds]  # the first NaN, if any
    ours, limits = (
        Distance(*(float(pair[side][index]) for pair, index in zip(kinds, at, strict=True)))
        for side in (0, 1)
    )
    return ours, limits


def _of_weights(found: Apart, allowed: Apart, steps: Sequence[int]) -> tuple[Numbers, Numbers]:
    """Errors and limits of all weights in ``steps``, in the same order."""
    pairs = [
        (error, allowed.gradients[step][name])
        for step in steps
        for name, error in found.gradients[step].items()
    ]
    return np.array([error for error, _ in pairs]), np.array([limit for _, limit in pairs])


def complaints(found: Apart, allowed: Apart) -> list[str]:
    """Describe every difference that exceeds its bound."""
    return [
        f"{name}: {value:.1e} off, allowed {limit:.1e}"
        for name, value, limit in zip(Distance._fields, *worst(found, allowed), strict=True)
        if not value <= limit
    ]


def undetected_zeros(one: Learned, allowed: Apart) -> list[str]:
    """Weights whose gradient could be zero in the last step without failing a cell:
    a control of the bounds."""
    last = max(one.gradients)
    found = []
    for name, whole in one.gradients[last].items():
        without = {last: one.gradients[last] | {name: np.zeros_like(whole)}}
        if not complaints(apart(one._replace(gradients=without), one), allowed):
            found.append(name)
    return found


def judged(cell: Cell, learned: Learned, one: Learned, allowed: Apart, like: Learned | None) -> list[str]:
    """Describe what is wrong with a cell; empty if it passes."""
    wrong = complaints(apart(learned, one), allowed)
    if like is not None and not same_bits(learned, like):
        wrong.append(f"other bits than {cell.like}")
    return wrong
