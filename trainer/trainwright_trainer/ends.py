"""How a process of the trainer says why it ended: one JSON file, complete or absent.

A planned end is told by rank 0 in ``outcome.json``; a rank that fails writes ``failure-<rank>.json``. Exit codes do
not survive the launcher, files do. Room for a failure's file is taken at the start, so that even a full disk can be
reported.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from pathlib import Path

import torch
from pydantic import ValidationError

from trainwright.contracts.base import problems
from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.job_spec import OUTCOME_NAME, JobSpec, Outcome, failure_name

_RESERVED_BYTES = 4_096
_MESSAGE_CHARACTERS = 1_000
_CPU_ALLOCATOR_FAILED = "DefaultCPUAllocator: can't allocate memory"
"""torch has a class of its own for this on GPUs only; on CPUs it is a RuntimeError."""


class BadJobError(ValueError):
    """The job cannot be run as it is written; the message names field, value and rule."""


class CheckpointInvalidError(Exception):
    """A checkpoint does not match its manifest or this job."""


class DivergedError(ArithmeticError):
    """The loss or the gradient norm of a step is not finite. All ranks see it alike.

    The optimizer has not moved, except in runs that release gradients: their state is spoilt.
    """


def read_job(path: Path) -> JobSpec:
    """Parse ``job.json``.

    Raises:
        BadJobError: it is unreadable or breaks a rule.
    """
    try:
        return JobSpec.model_validate_json(path.read_bytes())
    except ValidationError as error:
        found = [f"{problem.field}: {problem.message}" for problem in problems(error, JobSpec)]
        raise BadJobError(" ".join(found)) from error
    except OSError as error:
        raise BadJobError(f"{path}: {error.strerror}") from error


def reserve_last_words(out: Path, rank: int) -> None:
    """Take the room that ``write_failure`` will need."""
    _write_durably(_reserve(out, rank), b" " * _RESERVED_BYTES)


def release_last_words(out: Path, rank: int) -> None:
    _reserve(out, rank).unlink(missing_ok=True)


def write_outcome(out: Path, outcome: Outcome) -> None:
    """Tell the planned end of the attempt, durably."""
    draft = out / f"{OUTCOME_NAME}.tmp"
    _write_durably(draft, outcome.model_dump_json().encode())
    _rename_durably(draft, out / OUTCOME_NAME)


def write_failure(out: Path, rank: int, error: BaseException, step: int | None = None) -> None:
    """Tell why ``rank`` fails, durably, and print the traceback to its log."""
    traceback.print_exception(error)
    sys.stderr.flush()
    outcome = Outcome(code=code_of(error), message=_message(error), step=step, rank=rank)
    draft = _reserve(out, rank)
    out.mkdir(parents=True, exist_ok=True)
    _write_durably(draft, outcome.model_dump_json().encode())
    _rename_durably(draft, out / failure_name(rank))


def code_of(error: BaseException) -> EndCode:
    """The end code that an exception stands for."""
    if isinstance(error, BadJobError):
        return EndCode.BAD_JOB
    if isinstance(error, CheckpointInvalidError):
        return EndCode.CHECKPOINT_INVALID
    if isinstance(error, DivergedError):
        return EndCode.DIVERGED
    if isinstance(error, torch.OutOfMemoryError | MemoryError) or _CPU_ALLOCATOR_FAILED in str(error):
        return EndCode.OUT_OF_MEMORY
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return EndCode.DISK_FULL
    return EndCode.CRASHED


def _message(error: BaseException) -> str:
    if isinstance(error, BadJobError | CheckpointInvalidError | DivergedError):
        return str(error)[:_MESSAGE_CHARACTERS]
    return traceback.format_exception_only(error)[-1].strip()[:_MESSAGE_CHARACTERS]


def _reserve(out: Path, rank: int) -> Path:
    return out / f".{failure_name(rank)}.reserved"


def _write_durably(path: Path, content: bytes) -> None:
    """Overwrite in place, so that room taken earlier is used."""
    path.touch()
    with path.open("r+b") as file:
        file.write(content)
        file.flush()
        file.truncate(len(content))
        os.fsync(file.fileno())


def _rename_durably(draft: Path, path: Path) -> None:
    draft.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
