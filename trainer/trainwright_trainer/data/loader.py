"""From positions to batches: which sequences a rank reads in which step.

Step s takes the global positions (s-1)·G … s·G - 1 of the order. Rank r takes every R-th of them, so that any number
of ranks, and any cut into micro batches, sees the same global batches in the same order.

    B sequences of a micro batch   T position   G global batch   R ranks
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from trainwright.contracts.run_spec import BatchSpec
from trainwright_trainer.data.order import SequenceOrder
from trainwright_trainer.data.shards import TokenStream


class Batch(NamedTuple):
    """Inputs and the tokens that follow them, both (B, T) int64."""

    tokens: Tensor
    targets: Tensor


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
        tokens = torch.from_numpy(np.stack(rows))
        yield Batch(tokens[:, :-1], tokens[:, 1:])
