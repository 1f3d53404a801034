"""Reporting why a trainer process ended: one JSON file, complete or absent.

Rank 0 writes a planned end to ``outcome.json``; a rank that fails writes ``failure-<rank>.json``. Exit codes
do not survive the launcher, but files do. Disk space for the failure file is reserved at the start, so that
even a full disk can be reported.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import torch

from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.job_spec import OUTCOME_NAME, Outcome, failure_name
from trainwright.durable_files import SHARED, is_disk_full, rename_durably, sync_file, write_durably
from trainwright_trainer.distributed.axis import RankLostError
from trainwright_trainer.runtime.errors import (
    BadJobError,
    CheckpointInvalidError,
    DivergedError,
    ReaderError,
)

_RESERVED_BYTES = 4_096
_MESSAGE_CHARACTERS = 1_000
_WITNESS_SECONDS = 2.0
"""How long a rank waits after it lost contact with another. The launcher needs a tenth of this time to see which rank
left first, and why."""
_CPU_ALLOCATOR_FAILED = "DefaultCPUAllocator: can't allocate memory"
"""torch has an exception class for this on GPUs only; on CPUs it raises a RuntimeError."""


def reserve_failure_file(out: Path, rank: int) -> None:
    """Reserve the disk space that ``write_failure`` needs."""
    _overwrite(_reserve(out, rank), b" " * _RESERVED_BYTES)


def release_failure_file(out: Path, rank: int) -> None:
    _reserve(out, rank).unlink(missing_ok=True)


def write_outcome(out: Path, outcome: Outcome) -> None:
    """Write the planned end of the attempt, durably."""
    write_durably(out / OUTCOME_NAME, outcome.model_dump_json().encode(), SHARED)


def write_failure(out: Path, rank: int, error: BaseException, step: int | None = None) -> None:
    """Write why ``rank`` fails, durably, and print the traceback to its log."""
    traceback.print_exception(error)
    sys.stderr.flush()
    outcome = Outcome(code=end_code_of(error), message=_message(error), step=step, rank=rank)
    draft = _reserve(out, rank)
    out.mkdir(parents=True, exist_ok=True)
    _overwrite(draft, outcome.model_dump_json().encode())
    rename_durably(draft, out / failure_name(rank))


class FailureReport:
    """Context manager that reports an error of its block in the rank's failure file; then the block ends normally.

    Exits and signals pass through.

    Args:
        out: the job's output folder.
        rank: the rank that runs the block.
    """

    def __init__(self, out: Path, rank: int) -> None:
        self._out = out
        self._rank = rank
        self.failed = False
        self.last_step: Callable[[], int | None] = lambda: None
        """Returns the last completed step; to be set once that is known."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        self.failed = True
        if isinstance(error, RankLostError):
            time.sleep(_WITNESS_SECONDS)
        write_failure(self._out, self._rank, error, self.last_step())
        return True


def end_code_of(error: BaseException) -> EndCode:
    """The end code of an exception."""
    if isinstance(error, BadJobError):
        return EndCode.BAD_JOB
    if isinstance(error, CheckpointInvalidError):
        return EndCode.CHECKPOINT_INVALID
    if isinstance(error, DivergedError):
        return EndCode.DIVERGED
    if isinstance(error, RankLostError):
        return EndCode.RANK_LOST
    if isinstance(error, torch.OutOfMemoryError | MemoryError) or _CPU_ALLOCATOR_FAILED in str(error):
        return EndCode.OUT_OF_MEMORY
    if is_disk_full(error):
        return EndCode.DISK_FULL
    return EndCode.CRASHED


def _message(error: BaseException) -> str:
    if isinstance(error, BadJobError | CheckpointInvalidError | DivergedError | ReaderError):
        return str(error)[:_MESSAGE_CHARACTERS]
    return traceback.format_exception_only(error)[-1].strip()[:_MESSAGE_CHARACTERS]


def _reserve(out: Path, rank: int) -> Path:
    return out / f".{failure_name(rank)}.reserved"


def _overwrite(path: Path, content: bytes) -> None:
    """Overwrite in place, so that reserved space is used."""
    path.touch()
    with path.open("r+b") as file:
        file.write(content)
        file.truncate(len(content))
        sync_file(file)
