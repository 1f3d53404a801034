"""The sequences of each step, over all ranks.

Step s takes the global positions (s-1)·G … s·G - 1 of the order, counted from where the attempt started
(``position``). Rank r of R data ranks takes every R-th of them from the r-th on, so any number of ranks and any split
into micro batches sees the same global batches in the same order.
"""

from __future__ import annotations

import numpy as np

from trainwright_trainer.data.order import Indices, SequenceOrder
from trainwright_trainer.data.position import START, DataPosition

_ORDERED_AT_ONCE = 4_096
"""Positions of the order that are computed together."""


class GlobalBatches:
    """Which sequences each step reads. Everything it stores follows from the step, so resuming at a step needs no state."""

    def __init__(
        self, order: SequenceOrder, global_sequences: int, data_position: DataPosition = START
    ) -> None:
        self._order = order
        self._size = global_sequences
        self._position = data_position
        self._steps_at_once = max(1, _ORDERED_AT_ONCE // global_sequences)
        self._ordered: tuple[int, Indices] | None = None

    def of(self, step: int) -> Indices:
        """Sequences of a step. The order of many is computed together: one costs as many calls as a thousand."""
        group, within = divmod(step - 1 - self._position.step, self._steps_at_once)
        if self._ordered is None or self._ordered[0] != group:
            count = self._steps_at_once * self._size
            first = self._position.sequences + group * count
            positions = np.arange(first, first + count, dtype=np.uint64)
            self._ordered = group, self._order.at(positions)
        return self._ordered[1][within * self._size : (within + 1) * self._size]

    def read_after(self, step: int) -> int:
        """Sequences of the data order that all ranks have read after ``step``."""
        return self._position.sequences_after(step, self._size)
