"""Batches of a node in shared memory: what its reader (``data.node_reader``) fills and its ranks copy.

    header   start    step and sequence at which the attempt starts
             rows     sequences read so far, which shows that the reader makes progress
             slots    the step that each slot contains, plus one; 0 while it is being filled
             ranks    the step that each rank of the node has begun, plus one; 0 until it has attached
             error    why the reader failed
    slots    2 of (rows of the node, bytes of T + 1 ids), the ids as in the shards

A slot contains one step, so the reader prepares the next step while the ranks compute this one. It fills the slot of step s
once all ranks have begun step s - 1: none of them reads step s - 2 from it any more. A rank copies what it needs, and then
checks that the slot still contains its step.

The reader holds a lock as long as it lives, so that a rank that waits for it notices its end. The launcher creates the memory,
and passes its path to the ranks in ``TRAINWRIGHT_BATCHES``.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainwright.contracts.job_spec import JobSpec
from trainwright.contracts.rank_progress import AxisName, lines_along
from trainwright_trainer.data.position import DataPosition

BATCHES_VARIABLE = "TRAINWRIGHT_BATCHES"
SLOTS = 2
_MAX_TOKEN_BYTES = 4
_ERROR_BYTES = 1_000
MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 5e-5, 5e-3
"""Between two looks at a cell. A process that waits for long looks rarely, and one that must not wait for long is not late."""

_START_STEP, _START_SEQUENCES, _ROWS_READ, _ERROR_LENGTH, _FIRST_SLOT = range(5)
_FIRST_RANK = _FIRST_SLOT + SLOTS

_REORDERS = platform.machine() != "x86_64"

Rows = NDArray[np.uint8]
"""(sequences, bytes of the largest T + 1 ids)."""


class RingLayout(NamedTuple):
    """The sizes of a node's ring, which follow from the job."""

    ranks: int
    """Ranks of the node."""

    data_ranks: tuple[int, ...]
    """The data ranks that they have, in ascending order. Tensor and pipeline ranks share the rows of theirs."""

    rows_per_rank: int
    """Sequences that a data rank reads in a step."""

    sequence_tokens: int

    @property
    def rows(self) -> int:
        """Sequences of a slot."""
        return len(self.data_ranks) * self.rows_per_rank

    @property
    def row_bytes(self) -> int:
        return (self.sequence_tokens + 1) * _MAX_TOKEN_BYTES

    @property
    def header_bytes(self) -> int:
        unaligned = (_FIRST_RANK + self.ranks) * 8 + _ERROR_BYTES
        return -(-unaligned // mmap.PAGESIZE) * mmap.PAGESIZE

    @property
    def bytes(self) -> int:
        """The size of the entire ring. If ids are stored in two bytes, half of it is never touched and uses no memory."""
        return self.header_bytes + SLOTS * self.rows * self.row_bytes


def ring_layout(job: JobSpec) -> RingLayout:
    """The layout of this node's ring."""
    spec = job.spec
    data_rank = {
        rank: index for line in lines_along(AxisName.DATA, spec.degrees) for index, rank in enumerate(line)
    }
    return RingLayout(
        ranks=len(job.local_ranks),
        data_ranks=tuple(sorted({data_rank[rank] for rank in job.local_ranks})),
        rows_per_rank=spec.batch.global_sequences // spec.degrees.data,
        sequence_tokens=spec.batch.sequence_tokens,
    )


class BatchRing:
    """One process's view of the ring."""

    def __init__(self, path: str, layout: RingLayout) -> None:
        self.layout = layout
        # Opened again, not inherited: each opening has its own lock.
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        memory = mmap.mmap(self._descriptor, layout.bytes)
        cells = _FIRST_RANK + layout.ranks
        self._cells = np.frombuffer(memory, np.uint64, cells)
        self._error = np.frombuffer(memory, np.uint8, _ERROR_BYTES, cells * 8)
        self._slots = np.frombuffer(memory, np.uint8, offset=layout.header_bytes).reshape(
            SLOTS, layout.rows, layout.row_bytes
        )

    def rows(self, step: int) -> Rows:
        """The slot of ``step``."""
        slot: Rows = self._slots[step % SLOTS]
        return slot

    def contains(self, step: int) -> bool:
        """Whether the slot of ``step`` is filled with it."""
        filled = bool(self._cells[_cell_of(step)] == step + 1)
        _order_memory_accesses()
        return filled

    def begin_filling(self, step: int) -> None:
        """The slot of ``step`` has nothing from now on."""
        self._cells[_cell_of(step)] = 0
        _order_memory_accesses()

    def end_filling(self, step: int) -> None:
        """The slot of ``step`` is filled."""
        _order_memory_accesses()
        self._cells[_cell_of(step)] = step + 1

    @property
    def rows_read(self) -> int:
        """Sequences that the reader has read."""
        return int(self._cells[_ROWS_READ])

    def count_row(self) -> None:
        self._cells[_ROWS_READ] += np.uint64(1)

    def begin_step(self, local_rank: int, step: int) -> None:
        """A rank of the node no longer needs the slots of steps before ``step``."""
        _order_memory_accesses()
        self._cells[_FIRST_RANK + local_rank] = step + 1

    def all_have_begun(self, step: int) -> bool:
        """Whether no rank of the node needs the slots of steps before ``step``."""
        slowest = int(self._cells[_FIRST_RANK:].min())
        _order_memory_accesses()
        return slowest > step

    @property
    def start(self) -> DataPosition:
        """Where the attempt starts, once ranks have begun."""
        return DataPosition(int(self._cells[_START_STEP]), int(self._cells[_START_SEQUENCES]))

    @start.setter
    def start(self, position: DataPosition) -> None:
        self._cells[_START_STEP], self._cells[_START_SEQUENCES] = position.step, position.sequences

    @property
    def error(self) -> str | None:
        """Why the reader failed."""
        length = int(self._cells[_ERROR_LENGTH])
        _order_memory_accesses()
        return self._error[:length].tobytes().decode(errors="replace") if length else None

    @error.setter
    def error(self, reason: str) -> None:
        text = np.frombuffer(reason.encode()[:_ERROR_BYTES], np.uint8)
        self._error[: len(text)] = text
        _order_memory_accesses()
        self._cells[_ERROR_LENGTH] = len(text)

    def reader_is_alive(self) -> bool:
        """Whether a process holds the reader's lock."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        return False


@contextmanager
def ring_memory(layout: RingLayout) -> Iterator[str]:
    """Memory of an empty ring; yields its path, which other processes can open until the body ends.

    It has no name in a file system: the kernel frees it with the last process that uses it, however that ends. Unlike
    /dev/shm, which is small in containers, it is limited by memory only.
    """
    descriptor = os.memfd_create("batches")
    os.ftruncate(descriptor, layout.bytes)
    try:
        yield f"/proc/{os.getpid()}/fd/{descriptor}"
    finally:
        os.close(descriptor)


def lock_as_reader(path: str) -> int:
    """Take the reader's lock; it is held while any process has the returned descriptor."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def _cell_of(step: int) -> int:
    return _FIRST_SLOT + step % SLOTS


def _order_memory_accesses() -> None:
    """Order what this process reads and writes before the call before what it reads and writes after it.

    Other CPUs than x86 may let a process see a cell change before the rows that it announces. A call of the kernel's scheduler
    has a barrier.
    """
    if _REORDERS:
        os.sched_yield()
