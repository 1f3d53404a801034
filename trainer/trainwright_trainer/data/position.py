"""The position in the data at which an attempt starts.

A run whose steps all read equally many sequences does not need this: its position follows from the step. A
fork may read more or fewer sequences per step than its parent, or other data; it counts from the parent's
position, which its own checkpoints then save.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DataPosition:
    """The position from which an attempt counts."""

    step: int = 0
    sequences: int = 0
    """Sequences of the data order read before it."""

    tokens: int = 0
    """Tokens seen before it, of any data."""

    def sequences_after(self, step: int, per_step: int) -> int:
        return self.sequences + (step - self.step) * per_step

    def tokens_after(self, step: int, per_step: int) -> int:
        return self.tokens + (step - self.step) * per_step


START = DataPosition()
