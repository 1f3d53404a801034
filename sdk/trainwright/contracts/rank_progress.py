"""The progress of each rank in a training: the file that publishes it, and what a supervisor reports when ranks stall.

Each rank writes its progress to a small memory-mapped file. Publishing therefore needs no system call, and the file shows
where the rank is even if the rank is stopped, waits in a collective or is stuck in a driver. The reader does not trust the
writer: it turns any content into progress or None.

The file is an array of unsigned 64-bit integers (cells) in the machine's byte order:

========  ==================================================================================================
cell      content
========  ==================================================================================================
0         ``MAGIC``
1         the current step, or the last one
2         the current activity, as an index into ``ACTIVITIES``
3         the number of sections of steps (`forward`, `backward`, …) that have ended since the rank started
4         the number of point-to-point sends and receives, and of forward passes of validations and samples, since the
          rank started
5…        4 cells for each axis, in the order of ``AXES``: the number of collectives entered, the number of collectives
          left, and a ring of 16 bytes. The ring's byte ``n % 16`` is the operation of collective ``n``, as an index
          into ``OPERATIONS``
========  ==================================================================================================
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from trainwright.contracts.base import Report
from trainwright.contracts.checkpoint import MAX_STEP
from trainwright.contracts.hardware import MAX_SLOTS
from trainwright.contracts.parallelism_spec import Coordinates, Degrees

PROGRESS_FOLDER = "positions"
"""Folder of the files, in the trainer's output folder."""

STACKS_SIGNAL = "SIGUSR1"
"""Makes a rank write its Python stacks to its log, unless it is stopped or stuck in the kernel."""


def progress_file_name(rank: int) -> str:
    """Name of the file with a rank's progress."""
    return f"rank-{rank}"


class RankActivity(StrEnum):
    """What a rank does."""

    STARTING = "starting"
    STEP = "step"
    VALIDATION = "validation"
    SAVING = "saving"
    """It takes a snapshot, or waits until the previous checkpoint is written."""
    ENDING = "ending"


class AxisName(StrEnum):
    """An axis of the mesh: the ranks whose collectives are counted together."""

    __hash__ = str.__hash__  # an enum's own hash is Python code, and each collective looks one up

    WORLD = "world"
    TENSOR = "tensor"
    SHARD = "shard"
    REPLICAS = "replicas"
    DATA = "data"
    PIPELINE = "pipeline"
    MODEL = "model"
    STAGE = "stage"
    STAGE_BESIDE_PASSES = "stage_beside_passes"


class Operation(StrEnum):
    """A collective."""

    __hash__ = str.__hash__

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"
    REDUCE = "reduce"


VARIED_COORDINATES: dict[AxisName, tuple[str, ...]] = {
    AxisName.WORLD: ("pipeline", "replica", "shard", "tensor"),
    AxisName.TENSOR: ("tensor",),
    AxisName.SHARD: ("shard",),
    AxisName.REPLICAS: ("replica",),
    AxisName.DATA: ("replica", "shard"),
    AxisName.PIPELINE: ("pipeline",),
    AxisName.MODEL: ("pipeline", "tensor"),
    AxisName.STAGE: ("replica", "shard", "tensor"),
    AxisName.STAGE_BESIDE_PASSES: ("replica", "shard", "tensor"),
}
"""The coordinates in which the ranks of one group along an axis differ; the other coordinates are equal."""


def lines_along(axis: AxisName, degrees: Degrees) -> tuple[tuple[int, ...], ...]:
    """The groups of ranks along ``axis``. Each rank is in one of them, and each group is in ascending order."""
    lines: dict[Coordinates, list[int]] = {}
    for rank in range(degrees.ranks):
        start = replace(degrees.coordinates(rank), **dict.fromkeys(VARIED_COORDINATES[axis], 0))
        lines.setdefault(start, []).append(rank)
    return tuple(map(tuple, lines.values()))


ACTIVITIES = tuple(RankActivity)
AXES = tuple(AxisName)
OPERATIONS = tuple(Operation)

MAGIC = int.from_bytes(b"TWRANK01", sys.byteorder)
MAGIC_CELL, STEP_CELL, ACTIVITY_CELL, SECTIONS_CELL, MESSAGES_CELL, FIRST_AXIS_CELL = range(6)
CELLS_PER_AXIS = 4
REMEMBERED = 16
"""How many of an axis' last collectives are named."""
CELL_BYTES = 8
PROGRESS_BYTES = (FIRST_AXIS_CELL + CELLS_PER_AXIS * len(AXES)) * CELL_BYTES

_MOST = 2**63
Count = Annotated[int, Field(ge=0, lt=_MOST)]


class AxisCount(Report):
    """One rank's count of the collectives of an axis. The first is number 1."""

    axis: AxisName
    entered: Count
    """Number of the last collective that the rank entered, or started in the background."""

    left: Count
    """How many collectives have ended."""

    operations: list[Operation | None] = Field(default=[], max_length=REMEMBERED)
    """The last collectives that were entered, oldest first; None for an unknown operation."""

    def operation(self, number: int) -> Operation | None:
        """The operation of collective ``number``; None if it is no longer remembered or not entered yet."""
        index = number - self.entered - 1 + len(self.operations)
        return self.operations[index] if 0 <= index < len(self.operations) else None


class RankProgress(Report):
    """A rank's progress in the training."""

    step: int = Field(ge=0, le=MAX_STEP)
    activity: RankActivity
    sections: Count
    """How many sections of steps have ended."""

    messages: Count = 0
    """How many point-to-point sends and receives, and forward passes of validations and samples, there were."""

    axes: list[AxisCount] = Field(default=[], max_length=len(AXES))
    """The axes on which the rank has entered a collective."""

    def on(self, axis: AxisName) -> AxisCount:
        """The rank's collectives on ``axis``."""
        return next(
            (count for count in self.axes if count.axis is axis), AxisCount(axis=axis, entered=0, left=0)
        )


class StalledRank(Report):
    """One rank of a node on which no rank makes progress."""

    rank: int = Field(ge=0, lt=2**20)
    position: RankProgress
    stopped: bool
    """Whether the kernel has stopped its process (SIGSTOP, a debugger)."""


class Stall(Report):
    """No rank of a node has made progress for longer than its steps allow."""

    seconds: float = Field(ge=0, le=1e9, allow_inf_nan=False)
    """Time since the last progress."""

    limit_seconds: float | None = Field(default=None, ge=0, le=1e9, allow_inf_nan=False)
    """The limit that was exceeded; None from an older agent, which does not report it."""

    ranks: list[StalledRank] = Field(min_length=1, max_length=MAX_SLOTS)


def read_progress(content: bytes | None) -> RankProgress | None:
    """Read the progress from the content of a rank's file; None if the content is not valid."""
    if content is None or len(content) != PROGRESS_BYTES:
        return None
    numbers = memoryview(content).cast("Q")
    if numbers[MAGIC_CELL] != MAGIC or numbers[ACTIVITY_CELL] >= len(ACTIVITIES):
        return None
    if numbers[STEP_CELL] > MAX_STEP or max(numbers[SECTIONS_CELL], numbers[MESSAGES_CELL]) >= _MOST:
        return None
    axes = [_axis_count(numbers, content, index) for index in range(len(AXES))]
    return RankProgress(
        step=numbers[STEP_CELL],
        activity=ACTIVITIES[numbers[ACTIVITY_CELL]],
        sections=numbers[SECTIONS_CELL],
        messages=numbers[MESSAGES_CELL],
        axes=[count for count in axes if count is not None],
    )


def _axis_count(numbers: Sequence[int], content: bytes, index: int) -> AxisCount | None:
    """The counts of axis number ``index``; None if there are none, or if they are impossibly large."""
    first = FIRST_AXIS_CELL + CELLS_PER_AXIS * index
    entered, left = numbers[first], numbers[first + 1]
    if not 0 < entered < _MOST:
        return None
    left = min(left, entered)  # the rank may have run another collective while its file was read
    ring = content[(first + 2) * CELL_BYTES : (first + CELLS_PER_AXIS) * CELL_BYTES]
    codes = [ring[number % REMEMBERED] for number in range(max(1, entered - REMEMBERED + 1), entered + 1)]
    operations = [OPERATIONS[code] if code < len(OPERATIONS) else None for code in codes]
    return AxisCount(axis=AXES[index], entered=entered, left=left, operations=operations)
