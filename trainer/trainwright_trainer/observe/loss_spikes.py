"""Spikes of the loss: losses far above recent ones for several steps.

Spikes are only reported: many runs recover by themselves, and a person decides whether to resume from a checkpoint.
"""

from __future__ import annotations

import numpy as np

WINDOW_STEPS = 128
DEVIATIONS = 6.0
SPIKE_STEPS = 10


class LossSpikes:
    """Finds losses above mean + 6σ of the last 128 usual ones, for 10 steps in a row.

    Losses of a spike become usual once it is reported, so a loss that stays high is reported once. Nothing is found in
    the first 128 steps of an attempt.
    """

    def __init__(self) -> None:
        self._usual = np.zeros(WINDOW_STEPS)
        self._seen = 0
        self._high: list[float] = []

    def observe(self, loss: float) -> str | None:
        """Record the loss of one step; describes the spike at its tenth step, and returns None otherwise."""
        limit = self._usual.mean() + DEVIATIONS * self._usual.std()
        if self._seen < WINDOW_STEPS or loss <= limit:
            self._record(loss)
            self._high.clear()
            return None
        self._high.append(loss)
        if len(self._high) < SPIKE_STEPS:
            return None
        for high in self._high:
            self._record(high)
        self._high.clear()
        return (
            f"the loss has been above {limit:.4f} for {SPIKE_STEPS} steps: the mean of the {WINDOW_STEPS} steps before "
            f"plus {DEVIATIONS:g} standard deviations"
        )

    def _record(self, loss: float) -> None:
        self._usual[self._seen % WINDOW_STEPS] = loss
        self._seen += 1
