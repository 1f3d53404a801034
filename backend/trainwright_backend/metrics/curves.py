"""Curves in memory: slicing, joining and down-sampling them, and packing their points for storage.

This module does not use the database. A curve is down-sampled by keeping the minimum and the maximum of each of many
equal segments: every spike stays visible, and each point is a measured value. A stored chunk includes such a coarse
copy of itself (`coarse`), so that a wide view of a long series reads a fifteenth of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

STEP = np.dtype("<i8")
VALUE = np.dtype("<f8")
POINT = np.dtype([("step", STEP), ("value", VALUE)])

COARSE_SEGMENT = 62
"""Points of a segment, for which a coarse copy has two."""

Steps = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """Points of one series, in order of their steps."""

    steps: Steps
    values: Values

    @classmethod
    def empty(cls) -> "Curve":
        return cls(np.empty(0, STEP), np.empty(0, VALUE))

    @classmethod
    def joined(cls, parts: Sequence["Curve"]) -> "Curve":
        if not parts:
            return cls.empty()
        return cls(np.concatenate([p.steps for p in parts]), np.concatenate([p.values for p in parts]))

    def __len__(self) -> int:
        return len(self.steps)

    def between(self, after: int, last: int | None = None) -> "Curve":
        """Points with after < step ≤ last."""
        begin = int(np.searchsorted(self.steps, after, side="right"))
        end = len(self) if last is None else int(np.searchsorted(self.steps, last, side="right"))
        return self.part(begin, end)

    def part(self, begin: int, end: int) -> "Curve":
        """Points by position."""
        return Curve(self.steps[begin:end], self.values[begin:end])


def increasing(curve: Curve, last_step: int) -> Curve:
    """The curve without points that are not finite or not newer than all points before them."""
    finite = np.isfinite(curve.values)
    steps, values = curve.steps[finite], curve.values[finite]
    before = np.maximum.accumulate(np.concatenate(([last_step], steps)))[:-1]
    newer = steps > before
    return Curve(steps[newer], values[newer])


def downsampled(curve: Curve, points: int) -> Curve:
    """At most ``points`` points of the curve: minimum and maximum of each of ``points`` ÷ 2 equal segments.

    Every spike stays visible, each point is one that was measured, and the last one is always included.
    """
    if len(curve) <= points:
        return curve
    order = np.array([len(curve) - 1])
    if points > 2:
        order = np.append(_extremes(curve.values[:-1], (points - 1) // 2), order)
    return Curve(curve.steps[order], curve.values[order])


def coarse(curve: Curve) -> Curve:
    """Minimum and maximum of each segment of `COARSE_SEGMENT` points."""
    order = _extremes(curve.values, -(-len(curve) // COARSE_SEGMENT))
    return Curve(curve.steps[order], curve.values[order])


def _extremes(values: Values, segments: int) -> npt.NDArray[np.int64]:
    """Positions of the minimum and the maximum of each segment, in order; there are at least as many values as
    segments."""
    length, longer = divmod(len(values), segments)
    border = longer * (length + 1)
    found = []
    for begin, rows in (
        (0, values[:border].reshape(longer, length + 1)),
        (border, values[border:].reshape(-1, length)),
    ):
        if rows.size:
            begins = begin + np.arange(len(rows), dtype=np.int64) * rows.shape[1]
            found += [begins + rows.argmin(axis=1), begins + rows.argmax(axis=1)]
    return np.unique(np.concatenate(found))


def packed_steps(curve: Curve) -> bytes | None:
    """The steps' bytes; None for consecutive steps."""
    consecutive = int(curve.steps[-1]) - int(curve.steps[0]) == len(curve) - 1
    return None if consecutive else curve.steps.astype(STEP).tobytes()


def packed_values(curve: Curve) -> bytes:
    return curve.values.astype(VALUE).tobytes()


def packed_points(curve: Curve) -> bytes:
    """Steps and values together."""
    both = np.empty(len(curve), POINT)
    both["step"], both["value"] = curve.steps, curve.values
    return both.tobytes()


def unpacked(start_step: int, points: int, steps: bytes | None, values: bytes) -> Curve:
    """The inverse of `packed_steps` and `packed_values`."""
    if steps is None:
        return Curve(np.arange(start_step, start_step + points, dtype=STEP), np.frombuffer(values, VALUE))
    return Curve(np.frombuffer(steps, STEP), np.frombuffer(values, VALUE))


def unpacked_points(packed: Sequence[bytes]) -> Curve:
    """The inverse of `packed_points`, for many at once."""
    both = np.frombuffer(b"".join(packed), POINT)
    return Curve(both["step"], both["value"])
