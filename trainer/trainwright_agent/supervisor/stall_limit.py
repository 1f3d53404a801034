"""The time without progress after which the ranks of a node count as hung, learned from their steps.

The limit is three times the 99th percentile of the steps, and at least a floor. The supervisor measures the steps; the
trainer does not report them. A supervisor checks about once a second and misses steps of a fast run, but such short
steps are far below the floor. Time outside of steps (validation, saving) does not count.
"""

from __future__ import annotations

import math
from collections import deque

WINDOW_STEPS = 1_000
LEARNED_STEPS = 100
"""Steps before the limit is known: one step in a hundred may be slow, and the first ones also compile."""
_FACTOR = 3.0
_FRACTION = 0.99


class StallLimit:
    """The limit for the ranks of one attempt on one node."""

    def __init__(self) -> None:
        self._step: int | None = None
        self._spent_seconds = 0.0
        self._steps_seconds: deque[float] = deque(maxlen=WINDOW_STEPS)
        self._slow_step_seconds = 0.0

    @property
    def is_learned(self) -> bool:
        return len(self._steps_seconds) >= LEARNED_STEPS

    def seconds(self, floor_seconds: float) -> float:
        """The limit, at least ``floor_seconds``."""
        return max(floor_seconds, _FACTOR * self._slow_step_seconds)

    def observe(self, elapsed_seconds: float, step: int, *, in_step: bool) -> None:
        """Note that the ranks are at ``step``, ``elapsed_seconds`` after the last call.

        Args:
            elapsed_seconds: time since then.
            step: the latest step of any rank.
            in_step: whether that rank computes it, and does nothing else.
        """
        if in_step:
            self._spent_seconds += elapsed_seconds
        if self._step is None:
            self._step = step
        ended = step - self._step
        if ended <= 0:
            return
        counted = min(ended, WINDOW_STEPS)
        self._steps_seconds.extend([self._spent_seconds / ended] * counted)
        self._step, self._spent_seconds = step, 0.0
        ordered = sorted(self._steps_seconds)
        self._slow_step_seconds = ordered[math.ceil(_FRACTION * len(ordered)) - 1]
