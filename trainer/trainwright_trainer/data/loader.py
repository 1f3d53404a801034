"""From positions to batches: the sequences that a rank reads in a step (``data.global_batches``).

A rank reads the shards itself. If several ranks share a node, one process reads for all of them (``data.node_reader``), and
its batches are the same.

    B sequences of a micro batch   T position   G global batch   R ranks
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from trainwright.contracts.listing import listed
from trainwright.contracts.training_spec import BatchSpec
from trainwright_trainer.data.global_batches import GlobalBatches
from trainwright_trainer.data.order import Indices, SequenceOrder
from trainwright_trainer.data.position import START, DataPosition
from trainwright_trainer.data.shared_batches import SharedBatches
from trainwright_trainer.data.token_shards import TokenStream

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
    """Batches of one rank."""

    def __init__(
        self,
        train: TokenStream,
        batch: BatchSpec,
        seed: int,
        rank: int,
        ranks: int,
        data_position: DataPosition = START,
        shared: SharedBatches | None = None,
    ) -> None:
        """``shared``: where the reader of this node puts the batches; None if this rank reads the shards."""
        self._train = train
        self._batches = GlobalBatches(
            SequenceOrder(train.sequences, seed), batch.global_sequences, data_position
        )
        self._micro_sequences = batch.micro_sequences
        self._rank, self._ranks = rank, ranks
        self._shared = shared

    def micro_batches(self, step: int) -> Iterator[Batch]:
        """This rank's micro batches of optimizer step ``step``, which comes after the attempt's start.

        Batches of earlier steps must not be read any more.
        """
        if self._shared is None:
            mine = self._batches.of(step)[self._rank :: self._ranks]
            return read_batches(self._train, mine, self._micro_sequences)
        self._shared.begin_step(step)
        return self._shared_micro_batches(self._shared, step)

    def _shared_micro_batches(self, shared: SharedBatches, step: int) -> Iterator[Batch]:
        """Nothing is read before the first is needed: some ranks of a pipeline need none."""
        yield from map(Batch, shared.read(step).split(self._micro_sequences))

    def sequences_read(self, step: int) -> int:
        """Sequences of the data order that all ranks have read after ``step``."""
        return self._batches.read_after(step)

    def describe_batch(self, step: int) -> str:
        """Names the sequences of a step, the first few of a large batch."""
        sequences = self._batches.of(step).tolist()
        return f"sequences {listed(sequences, _NAMED_SEQUENCES)} of the training split"


def read_batches(stream: TokenStream, sequences: Indices, micro_sequences: int) -> Iterator[Batch]:
    """The given sequences in batches of ``micro_sequences``; the last one may be smaller."""
    names = sequences.tolist()
    together = micro_sequences * max(1, _READ_AT_ONCE_TOKENS // (micro_sequences * stream.sequence_tokens))
    for start in range(0, len(names), together):
        rows = torch.from_numpy(stream.read(names[start : start + together]))
        for first in range(0, len(rows), micro_sequences):
            yield Batch(rows[first : first + micro_sequences])
