"""A rank's batches from the ring that the reader of its node fills (``data.batch_ring``)."""

from __future__ import annotations

import time

import numpy as np
import torch
from torch import Tensor

from trainwright.contracts.token_shards import TokenType
from trainwright_trainer.data.batch_ring import (
    MAX_PAUSE_SECONDS,
    MIN_PAUSE_SECONDS,
    BatchRing,
)
from trainwright_trainer.data.position import DataPosition
from trainwright_trainer.runtime.errors import ReaderError

PATIENCE_SECONDS = 20.0
"""How long a rank waits for a reader that reads nothing. An agent calls ranks hung after 30 seconds or more, and does not
know of the reader; this error names it."""


class SharedBatches:
    """The rows of one data rank."""

    def __init__(
        self, ring: BatchRing, local_rank: int, data_rank: int, token_type: TokenType, start: DataPosition
    ) -> None:
        """Attach to the ring. The reader starts when all ranks of the node have.

        Args:
            ring: of this node.
            local_rank: this rank's number on its node.
            data_rank: its index on the data axis.
            token_type: of the ids in the shards.
            start: where the attempt starts, the same on all ranks.
        """
        self._ring = ring
        self._local_rank = local_rank
        first = ring.layout.data_ranks.index(data_rank) * ring.layout.rows_per_rank
        self._own = slice(first, first + ring.layout.rows_per_rank)
        self._dtype = np.dtype(f"<u{token_type.bytes_per_token}")
        self._row_bytes = (ring.layout.sequence_tokens + 1) * token_type.bytes_per_token
        ring.start = start
        ring.begin_step(local_rank, start.step)

    def begin_step(self, step: int) -> None:
        """Give back the slots of earlier steps; ranks that read no batches do this too."""
        self._ring.begin_step(self._local_rank, step)

    def read(self, step: int) -> Tensor:
        """A copy of this rank's rows of ``step``: (sequences, T + 1) int64.

        Raises:
            ReaderError: the reader has failed or ended, or reads nothing.
        """
        self._wait_for(step)
        rows = self._ring.rows(step)[self._own, : self._row_bytes].view(self._dtype).astype(np.int64)
        if not self._ring.contains(step):
            raise ReaderError(f"the batch of step {step:,} was overwritten while a rank read it")
        return torch.from_numpy(rows)

    def _wait_for(self, step: int) -> None:
        waited, rows_read, pause = 0.0, -1, MIN_PAUSE_SECONDS
        while True:
            alive = self._ring.reader_is_alive()
            if self._ring.contains(step):  # asked after the lock: it may have filled the slot and ended
                return
            self._raise_problem(step, alive, waited)
            time.sleep(pause)
            # Pauses are counted, not time: a machine that was suspended blames nobody.
            waited = waited + pause if rows_read == self._ring.rows_read else 0.0
            rows_read = self._ring.rows_read
            pause = min(2 * pause, MAX_PAUSE_SECONDS)

    def _raise_problem(self, step: int, alive: bool, waited_seconds: float) -> None:
        if (error := self._ring.error) is not None:
            raise ReaderError(f"the reader of this node failed: {error}")
        if not alive:
            raise ReaderError(
                f"the reader of this node ended before it had read step {step:,}: was it killed?"
            )
        if waited_seconds > PATIENCE_SECONDS:
            raise ReaderError(
                f"the reader of this node has read nothing for {waited_seconds:.0f} seconds, and step {step:,} waits for it: "
                "either its process is stopped, or the disk with the shards does not respond"
            )
