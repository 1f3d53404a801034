"""How far the data had been read when an attempt began.

A run that reads the same number of sequences in each step from the first one on needs no such thing: its place follows
from the step. A fork may read more or fewer than its parent did, or other data; it counts on from the parent's place,
which its own checkpoints then carry along.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Begun:
    """The place from which an attempt counts."""

    step: int = 0
    sequences: int = 0
    """Of the order of the data, read by then."""

    tokens: int = 0
    """Seen by then, of whatever data."""

    def sequences_after(self, step: int, per_step: int) -> int:
        return self.sequences + (step - self.step) * per_step

    def tokens_after(self, step: int, per_step: int) -> int:
        return self.tokens + (step - self.step) * per_step


START = Begun()
