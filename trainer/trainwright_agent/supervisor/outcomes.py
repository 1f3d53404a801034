"""Determining an attempt's outcome from the files that its processes wrote.

torch's launcher turns every exit code into 1, so only the exit codes of the supervisor's own children count. In order
of precedence: the outcome that rank 0 wrote at a planned end; the reason that the first failed rank wrote; the exit of
that rank; the exit of the launcher. A trainer cannot report an end code that is reserved for the platform.
"""

from __future__ import annotations

import signal
from pathlib import Path

from pydantic import ValidationError

from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.job_spec import (
    EXPORT_FOLDER,
    OUTCOME_NAME,
    OUTPUT_FOLDER,
    RANKS_NAME,
    Outcome,
    RankExit,
    RankExits,
    failure_name,
)
from trainwright.contracts.token_shards import MANIFEST_NAME
from trainwright.durable_files import is_disk_full
from trainwright_agent.untrusted_files import read_small

_REPORTABLE = frozenset(
    {
        EndCode.FINISHED,
        EndCode.SAVED,
        EndCode.BAD_JOB,
        EndCode.DIVERGED,
        EndCode.OUT_OF_MEMORY,
        EndCode.CRASHED,
        EndCode.RANK_LOST,
        EndCode.CHECKPOINT_INVALID,
        EndCode.EXPORT_FAILED,
        EndCode.DISK_FULL,
    }
)
"""Codes that a trainer may report."""
_PLANNED = frozenset({EndCode.FINISHED, EndCode.SAVED})
_RANK_LIMIT = 4_096
_MESSAGE_CHARACTERS = 2_000


def training_outcome(folder: Path, launcher_code: int) -> Outcome:
    """The outcome of the training.

    Args:
        folder: the attempt's folder.
        launcher_code: the launcher's exit code, negative for a signal.
    """
    planned = _outcome(folder, OUTCOME_NAME)
    if planned is not None:
        return planned
    first = _first_exit(folder)
    if first is not None:
        failure = _outcome(folder, failure_name(first.rank))
        return (
            _crash_of(first)
            if failure is None or failure.code in _PLANNED
            else _with_rank(failure, first.rank)
        )
    for rank in range(_RANK_LIMIT if launcher_code else 0):
        failure = _outcome(folder, failure_name(rank))
        if failure is not None and failure.code not in _PLANNED:
            return _with_rank(failure, rank)
    return Outcome(code=EndCode.CRASHED, message=f"The launcher {_describe_exit(launcher_code)}.")


def export_outcome(folder: Path, export_code: int, step: int | None) -> Outcome:
    """The outcome of the export.

    Args:
        folder: the attempt's folder.
        export_code: exit code of the export process, negative for a signal.
        step: the last step, if this attempt trained to it.
    """
    complete = read_small(folder, OUTPUT_FOLDER, EXPORT_FOLDER, MANIFEST_NAME) is not None
    planned = _outcome(folder, OUTCOME_NAME)
    if export_code == 0 and complete:
        step = planned.step if step is None and planned is not None else step
        return Outcome(code=EndCode.FINISHED, message="Trained to the last step and exported.", step=step)
    for reported in (planned, _outcome(folder, failure_name(0))):
        if reported is not None and reported.code not in _PLANNED:
            return reported
    how = _describe_exit(export_code) if export_code else "wrote no manifest"
    return Outcome(code=EndCode.EXPORT_FAILED, message=f"The export {how}.", step=step)


def node_failure(error: OSError) -> Outcome:
    """The outcome when the node's disk or kernel returned an error."""
    if is_disk_full(error):
        return Outcome(code=EndCode.DISK_FULL, message=f"The node's disk is full: {error}.")
    return Outcome(code=EndCode.CRASHED, message=f"The node returned an error: {error}.")


def clear_failures(folder: Path) -> None:
    """Remove rank 0's failure of the training, so that it is not taken for the export's."""
    (folder / OUTPUT_FOLDER / failure_name(0)).unlink(missing_ok=True)


def _outcome(folder: Path, name: str) -> Outcome | None:
    content = read_small(folder, OUTPUT_FOLDER, name, limit_bytes=2**20)
    if content is None:
        return None
    try:
        outcome = Outcome.model_validate_json(content)
    except ValidationError:
        return None
    if outcome.code not in _REPORTABLE:
        outcome = outcome.model_copy(update={"code": EndCode.CRASHED})
    return outcome.model_copy(update={"message": outcome.message[:_MESSAGE_CHARACTERS]})


def _first_exit(folder: Path) -> RankExit | None:
    content = read_small(folder, OUTPUT_FOLDER, RANKS_NAME, limit_bytes=2**20)
    try:
        exits = RankExits.model_validate_json(content or b"").exits
    except ValidationError:
        return None
    return exits[0] if exits else None


def _with_rank(failure: Outcome, rank: int) -> Outcome:
    message = (
        failure.message if f"rank {rank}" in failure.message.lower() else f"Rank {rank}: {failure.message}"
    )
    return failure.model_copy(update={"rank": rank, "message": message})


def _crash_of(first: RankExit) -> Outcome:
    code = -first.signal if first.signal is not None else first.exit_code or 0
    message = f"Rank {first.rank} {_describe_exit(code)}."
    return Outcome(code=EndCode.CRASHED, message=message, rank=first.rank)


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"exited with code {code} without giving a reason"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = ", which the kernel sends when memory runs out" if name == "SIGKILL" else ""
    return f"was killed by {name}{hint}"
