"""Publishes this rank's progress: its step, and how many collectives it has entered and left on each axis.

The progress is in a file that is mapped into memory (``contracts.rank_progress``), so the agent can read it even if this
process is stuck. Publishing writes a few numbers and costs less than a microsecond, without a system call.

Collectives inside compiled graphs are not counted: the compiler traces ``Axis`` and leaves the counting out. Libraries start
their own collectives (FSDP, DeepSpeed, the sends of pipeline schedules) without this module. For these, the sections of a
step that have ended are counted.

One thread at a time uses an axis, and only the training's thread counts the rest, so nothing needs a lock.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from trainwright.contracts.rank_progress import (
    ACTIVITIES,
    ACTIVITY_CELL,
    AXES,
    CELL_BYTES,
    CELLS_PER_AXIS,
    FIRST_AXIS_CELL,
    MAGIC,
    MAGIC_CELL,
    MESSAGES_CELL,
    OPERATIONS,
    PROGRESS_BYTES,
    REMEMBERED,
    SECTIONS_CELL,
    STEP_CELL,
    AxisName,
    Operation,
    RankActivity,
)

_Item = TypeVar("_Item")

_CELL_OF_AXIS = {axis: FIRST_AXIS_CELL + CELLS_PER_AXIS * index for index, axis in enumerate(AXES)}
_CODE_OF_OPERATION = {operation: code for code, operation in enumerate(OPERATIONS)}


class ProgressCounters:
    """Counters of what this rank has done, which `contracts.rank_progress.RankProgress` reads. The parts of the training update them.

    Args:
        memory: where to publish them, all zeros; None if nobody reads them.
    """

    def __init__(self, memory: mmap.mmap | None = None) -> None:
        content = memoryview(bytearray(PROGRESS_BYTES) if memory is None else memory)
        self._bytes = content.cast("B")
        self._cells = content.cast("Q")
        self._cells[MAGIC_CELL] = MAGIC

    def set_activity(self, activity: RankActivity) -> None:
        """Publish what the rank does from now on."""
        self._cells[ACTIVITY_CELL] = ACTIVITIES.index(activity)

    def begin_step(self, step: int) -> None:
        """Publish that the rank computes ``step`` from now on."""
        self._cells[STEP_CELL] = step
        self.set_activity(RankActivity.STEP)

    def count_section(self) -> None:
        """Count a section of the step that has ended."""
        self._cells[SECTIONS_CELL] += 1

    def count_message(self) -> None:
        """Count a message that the rank is about to send to one rank, or to receive from it."""
        self._cells[MESSAGES_CELL] += 1

    def count_pass(self) -> None:
        """Count a forward pass that the rank is about to compute: a batch of a validation, or a token of a sample."""
        self._cells[MESSAGES_CELL] += 1

    def enter(self, axis: AxisName, operation: Operation) -> None:
        """Count a collective that the rank enters, or starts in the background."""
        cell = _CELL_OF_AXIS[axis]
        number = self._cells[cell] + 1
        self._bytes[(cell + 2) * CELL_BYTES + number % REMEMBERED] = _CODE_OF_OPERATION[operation]
        self._cells[cell] = number

    def leave(self, axis: AxisName) -> None:
        """Count a collective of this axis that has ended."""
        self._cells[_CELL_OF_AXIS[axis] + 1] += 1


def counted(batches: Iterable[_Item], progress: ProgressCounters) -> Iterator[_Item]:
    """``batches``, counted one by one as progress, because a long validation on one rank has no collectives."""
    for batch in batches:
        progress.count_pass()
        yield batch


def publish_progress(file: Path) -> ProgressCounters:
    """Create ``file`` and publish the progress of this rank there."""
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        # Allocated, because writing to a hole of a mapped file kills the process if the disk is full.
        os.posix_fallocate(descriptor, 0, PROGRESS_BYTES)
        return ProgressCounters(mmap.mmap(descriptor, PROGRESS_BYTES))
    finally:
        os.close(descriptor)
