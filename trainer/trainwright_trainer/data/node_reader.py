"""The reader of a node: one process that reads the shards for all ranks of its node (``data.batch_ring``).

It computes the order of the data, reads each step's sequences once, whatever number of ranks needs them, and is one step
ahead of the ranks. It does not widen ids and knows nothing of micro batches: ranks do that with their own rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from trainwright.contracts.job_spec import JobSpec
from trainwright_trainer.data.batch_ring import (
    MAX_PAUSE_SECONDS,
    MIN_PAUSE_SECONDS,
    BatchRing,
    ring_layout,
)
from trainwright_trainer.data.global_batches import GlobalBatches
from trainwright_trainer.data.order import Indices, SequenceOrder
from trainwright_trainer.data.token_shards import TokenFiles, read_manifest


def read_for_node(job: JobSpec, data: Path, path: str) -> None:
    """Fill the ring at ``path`` with the steps of ``job``, until the last one.

    An error that the shards cause is passed on to the ranks, which report it.

    Args:
        job: what this node trains.
        data: folder of the shards.
        path: of the ring's memory.
    """
    ring = BatchRing(path, ring_layout(job))
    try:
        _fill(ring, job, data)
    except (OSError, ValueError) as error:
        ring.error = str(error)
        raise


def _fill(ring: BatchRing, job: JobSpec, data: Path) -> None:
    spec = job.spec
    _wait_until(partial(ring.all_have_begun, 0))
    start = ring.start
    manifest = read_manifest(data)
    files = TokenFiles(data, manifest.train, manifest.token_type, spec.batch.sequence_tokens)
    order = SequenceOrder(files.sequences, spec.seed)
    batches = GlobalBatches(order, spec.batch.global_sequences, start)
    for step in range(start.step + 1, spec.schedule.steps + 1):
        _wait_until(partial(ring.all_have_begun, step - 1))
        ring.begin_filling(step)
        _read_step(ring, files, batches.of(step), step, spec.degrees.data)
        ring.end_filling(step)


def _read_step(ring: BatchRing, files: TokenFiles, sequences: Indices, step: int, data_ranks: int) -> None:
    """Read the sequences of the node's data ranks, one rank's after the other's."""
    row_bytes = (files.sequence_tokens + 1) * files.bytes_per_token
    slot = ring.rows(step).data.cast("B")
    stride, first = ring.layout.row_bytes, 0
    for rank in ring.layout.data_ranks:
        for sequence in sequences[rank::data_ranks].tolist():
            files.read_into(slot[first : first + row_bytes], sequence)
            ring.count_row()
            first += stride


def _wait_until(ready: Callable[[], bool]) -> None:
    pause = MIN_PAUSE_SECONDS
    while not ready():
        time.sleep(pause)
        pause = min(2 * pause, MAX_PAUSE_SECONDS)
