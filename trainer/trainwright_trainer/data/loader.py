"""From positions to batches: which sequences a rank reads in which step.

Step s takes the global positions (s-1)·G … s·G - 1 of the order. Rank r takes every R-th of them, so that any number
of ranks, and any cut into micro batches, sees the same global batches in the same order.

    B sequences of a micro batch   T position   G global batch   R ranks
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from trainwright.contracts.run_spec import BatchSpec
from trainwright_trainer.data.order import SequenceOrder
from trainwright_trainer.data.shards import TokenStream


@dataclass(frozen=True)
class Batch:
    """Sequences with the token after each: (B, T + 1) int64, of which inputs and targets are two views."""

    sequences: Tensor

    @property
    def tokens(self) -> Tensor:
        """(B, T)."""
        return self.sequences[:, :-1]

    @property
    def targets(self) -> Tensor:
        """(B, T): the tokens that follow."""
        return self.sequences[:, 1:]

    def to(self, device: torch.device) -> Batch:
        """Copy to ``device``; a GPU fetches from pinned memory when it gets there, and nobody waits for it."""
        if device.type != "cuda":
            return self
        return Batch(self.sequences.pin_memory().to(device, non_blocking=True))


class Loader:
    """Batches of one rank; stateless, so resuming at a step is asking for it."""

    def __init__(self, train: TokenStream, batch: BatchSpec, seed: int, rank: int, ranks: int) -> None:
        self._train = train
        self._order = SequenceOrder(train.sequences, seed)
        self._batch = batch
        self._rank, self._ranks = rank, ranks

    def micro_batches(self, step: int) -> Iterator[Batch]:
        """The micro batches of this rank in optimizer step ``step`` (from 1)."""
        first, size = (step - 1) * self._batch.global_sequences, self._batch.global_sequences
        mine = np.arange(first + self._rank, first + size, self._ranks, dtype=np.uint64)
        yield from read_batches(self._train, self._order.at(mine), self._batch.micro_sequences)


def read_batches(stream: TokenStream, sequences: np.ndarray, micro_sequences: int) -> Iterator[Batch]:
    """The named sequences in batches of ``micro_sequences``, the last one perhaps smaller."""
    for start in range(0, len(sequences), micro_sequences):
        rows = [stream.sequence(int(index)) for index in sequences[start : start + micro_sequences]]
        yield Batch(torch.from_numpy(np.stack(rows)))
