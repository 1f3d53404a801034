"""Paired differences of losses over seeds, with their interval.

Two trainings that differ by one rounding drift apart until they differ almost as much as two seeds. So one pair shows
nothing. A seed gives one number: the difference of the final validation loss in percent. The result is its mean over seeds
with the 95 % interval (Student's t).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import mean, stdev

POWER = 0.8
_MAX_SEEDS = 1_000


@dataclass(frozen=True)
class Difference:
    """Differences to a base over seeds, in percent of the base's loss."""

    mean: float
    deviation: float
    """Standard deviation of one seed's difference."""

    seeds: int

    @classmethod
    def between(cls, losses: Sequence[float], base: Sequence[float]) -> Difference:
        """Create from the losses of both, which have the same seeds."""
        return cls.of([100 * (one / other - 1) for one, other in zip(losses, base, strict=True)])

    @classmethod
    def of(cls, percents: Sequence[float]) -> Difference:
        """Create from the difference of each seed; at least two."""
        return cls(mean(percents), stdev(percents), len(percents))

    @property
    def half_width(self) -> float:
        """Half the width of the 95 % interval."""
        return students_t(self.seeds - 1) * self.deviation / math.sqrt(self.seeds)

    @property
    def upper(self) -> float:
        return self.mean + self.half_width

    @property
    def lower(self) -> float:
        return self.mean - self.half_width

    def power(self, bound: float) -> float:
        """Probability that the upper end is within ``bound`` if there is no difference, with as many seeds of this deviation."""
        return power(self.deviation, self.seeds, bound)

    def __str__(self) -> str:
        return f"{self.mean:+.3f} % ± {self.half_width:.3f}"


@cache
def students_t(freedom: int) -> float:
    """Quantile 0.975 of Student's t with ``freedom`` degrees of freedom."""
    low, high = 1.9, 13.0  # the quantiles of a normal number and of 1 degree
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if _below(middle, freedom, 0.0) < 0.975 else (low, middle)
    return high


def power(deviation: float, seeds: int, bound: float) -> float:
    """Probability that the upper end of the interval of ``seeds`` numbers of mean 0 is at most ``bound``."""
    if deviation == 0:
        return 1.0
    return 1 - _below(students_t(seeds - 1), seeds - 1, bound * math.sqrt(seeds) / deviation)


def seeds_needed(deviation: float, bound: float) -> int | None:
    """The number of seeds that gives the required power; None if it is more than a thousand."""
    enough = range(2, _MAX_SEEDS)
    found = bisect_left(enough, True, key=lambda seeds: power(deviation, seeds, bound) >= POWER)
    return enough[found] if found < len(enough) else None


def _below(t: float, freedom: int, shift: float) -> float:
    """P((Z + shift) / S ≤ t), where Z is normal and S² is χ² over its degrees of freedom: the noncentral t.

    The integral of Φ(t s - shift) over the density of S, by the midpoint rule; beyond 1 + 9 / √(2 freedom)
    S has less than 10⁻⁸.
    """
    parts = 2_000
    width = (1 + 9 / math.sqrt(2 * freedom)) / parts
    log_factor = math.log(2) + freedom / 2 * math.log(freedom / 2) - math.lgamma(freedom / 2)
    total = 0.0
    for part in range(parts):
        s = (part + 0.5) * width
        density = math.exp(log_factor + (freedom - 1) * math.log(s) - freedom * s * s / 2)
        total += density * (1 + math.erf((t * s - shift) / math.sqrt(2))) / 2
    return total * width
