"""From positions to batches: the sequences that a rank reads in a step.

Step s takes the global positions (s-1)·G … s·G - 1 of the order, counted from where the attempt started
(``position``). Rank r takes every R-th of them, so any number of ranks and any split into micro batches sees
the same global batches in the same order.

    B sequences of a micro batch   T position   G global batch   R ranks
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from trainwright.contracts.training_spec import BatchSpec
from trainwright_trainer.data.order import Indices, SequenceOrder
from trainwright_trainer.data.position import START, DataPosition
from trainwright_trainer.data.token_shards import TokenStream

_ORDERED_AT_ONCE = 4_096
"""Positions of the order that are computed together."""

_READ_AT_ONCE_TOKENS = 2**16
"""Micro batches of up to this many tokens are read together: for small ones, calls cost more than tokens."""

_NAMED_SEQUENCES = 4


@dataclass(frozen=True)
class Batch:
    """Sequences with one more token each: (B, T + 1) int64; inputs and targets are two views."""

    sequences: Tensor

    @property
    def tokens(self) -> Tensor:
        """(B, T)."""
        return self.sequences[:, :-1]

    @property
    def targets(self) -> Tensor:
        """(B, T): the next tokens."""
        return self.sequences[:, 1:]

    def to(self, device: torch.device) -> Batch:
        """Copy to ``device``; a GPU copies asynchronously from pinned memory, and the host does not wait."""
        if device.type != "cuda":
            return self
        return Batch(self.sequences.pin_memory().to(device, non_blocking=True))


class Loader:
    """Batches of one rank. Everything it stores follows from the step, so resuming at a step needs no state."""

    def __init__(
        self,
        train: TokenStream,
        batch: BatchSpec,
        seed: int,
        rank: int,
        ranks: int,
        data_position: DataPosition = START,
    ) -> None:
        self._train = train
        self._order = SequenceOrder(train.sequences, seed)
        self._batch = batch
        self._rank, self._ranks = rank, ranks
        self._position = data_position
        self._steps_at_once = max(1, _ORDERED_AT_ONCE // batch.global_sequences)
        self._ordered: tuple[int, Indices] | None = None

    def micro_batches(self, step: int) -> Iterator[Batch]:
        """This rank's micro batches of optimizer step ``step``, which comes after the attempt's start."""
        mine = self._global_batch(step)[self._rank :: self._ranks]
        yield from read_batches(self._train, mine, self._batch.micro_sequences)

    def sequences_read(self, step: int) -> int:
        """Sequences of the data order that all ranks have read after ``step``."""
        return self._position.sequences_after(step, self._batch.global_sequences)

    def describe_batch(self, step: int) -> str:
        """Names the sequences of a step, the first few of a large batch."""
        sequences = self._global_batch(step).tolist()
        named = ", ".join(str(sequence) for sequence in sequences[:_NAMED_SEQUENCES])
        more = len(sequences) - _NAMED_SEQUENCES
        return f"sequences {named}{f' and {more:,} more' if more > 0 else ''} of the training split"

    def _global_batch(self, step: int) -> Indices:
        """Sequences of a step. The order of many is computed together: one costs as many calls as a thousand."""
        size = self._batch.global_sequences
        group, within = divmod(step - 1 - self._position.step, self._steps_at_once)
        if self._ordered is None or self._ordered[0] != group:
            count = self._steps_at_once * size
            first = self._position.sequences + group * count
            positions = np.arange(first, first + count, dtype=np.uint64)
            self._ordered = group, self._order.at(positions)
        return self._ordered[1][within * size : (within + 1) * size]


def read_batches(stream: TokenStream, sequences: Indices, micro_sequences: int) -> Iterator[Batch]:
    """The given sequences in batches of ``micro_sequences``; the last one may be smaller."""
    names = sequences.tolist()
    together = micro_sequences * max(1, _READ_AT_ONCE_TOKENS // (micro_sequences * stream.sequence_tokens))
    for start in range(0, len(names), together):
        rows = torch.from_numpy(stream.read(names[start : start + together]))
        for first in range(0, len(rows), micro_sequences):
            yield Batch(rows[first : first + micro_sequences])
