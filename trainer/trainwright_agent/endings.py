"""How an attempt ended, decided from the files its processes left.

torch's launcher turns every exit code into 1, so codes are believed only of processes the supervisor started itself.
The order: what rank 0 said at a planned end; what the rank that failed first said; how it left; how the launcher left.
Nothing a trainer writes can name an end that only the platform may declare.
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
from trainwright.contracts.shards import MANIFEST_NAME
from trainwright_agent.files import is_disk_full, read_small

_SAYABLE = frozenset(
    {
        EndCode.FINISHED,
        EndCode.SAVED,
        EndCode.BAD_JOB,
        EndCode.DIVERGED,
        EndCode.OUT_OF_MEMORY,
        EndCode.CRASHED,
        EndCode.CHECKPOINT_INVALID,
        EndCode.EXPORT_FAILED,
        EndCode.DISK_FULL,
    }
)
"""Codes that a trainer may give."""
_PLANNED = frozenset({EndCode.FINISHED, EndCode.SAVED})
_RANK_LIMIT = 4_096
_MESSAGE_CHARACTERS = 2_000


def training_end(folder: Path, launcher_code: int) -> Outcome:
    """How training ended.

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
        return _crash(first) if failure is None or failure.code in _PLANNED else _of_rank(failure, first.rank)
    for rank in range(_RANK_LIMIT if launcher_code else 0):
        failure = _outcome(folder, failure_name(rank))
        if failure is not None and failure.code not in _PLANNED:
            return _of_rank(failure, rank)
    return Outcome(
        code=EndCode.CRASHED, message=f"The launcher {_how_left(launcher_code)} without giving a reason."
    )


def export_end(folder: Path, export_code: int, step: int | None) -> Outcome:
    """How the export ended.

    Args:
        folder: the attempt's folder.
        export_code: exit code of the export's process, negative for a signal.
        step: the step that was trained to, when this attempt did it.
    """
    complete = read_small(folder, OUTPUT_FOLDER, EXPORT_FOLDER, MANIFEST_NAME) is not None
    planned = _outcome(folder, OUTCOME_NAME)
    if export_code == 0 and complete:
        step = planned.step if step is None and planned is not None else step
        return Outcome(code=EndCode.FINISHED, message="Trained to the last step and exported.", step=step)
    for said in (planned, _outcome(folder, failure_name(0))):
        if said is not None and said.code not in _PLANNED:
            return said
    how = _how_left(export_code) if export_code else "left no manifest"
    return Outcome(code=EndCode.EXPORT_FAILED, message=f"The export {how}. Read export.log.", step=step)


def node_end(error: OSError) -> Outcome:
    """How an attempt ends to which the node's disk or kernel refused something."""
    if is_disk_full(error):
        return Outcome(code=EndCode.DISK_FULL, message=f"The node's disk is full: {error}.")
    return Outcome(code=EndCode.CRASHED, message=f"The node refused what the attempt needs: {error}.")


def forget_failures(folder: Path) -> None:
    """Before an export: a failure of the training before it must not be read as the export's."""
    (folder / OUTPUT_FOLDER / failure_name(0)).unlink(missing_ok=True)


def _outcome(folder: Path, name: str) -> Outcome | None:
    content = read_small(folder, OUTPUT_FOLDER, name, limit_bytes=2**20)
    if content is None:
        return None
    try:
        outcome = Outcome.model_validate_json(content)
    except ValidationError:
        return None
    if outcome.code not in _SAYABLE:
        outcome = outcome.model_copy(update={"code": EndCode.CRASHED})
    return outcome.model_copy(update={"message": outcome.message[:_MESSAGE_CHARACTERS]})


def _first_exit(folder: Path) -> RankExit | None:
    content = read_small(folder, OUTPUT_FOLDER, RANKS_NAME, limit_bytes=2**20)
    try:
        exits = RankExits.model_validate_json(content or b"").exits
    except ValidationError:
        return None
    return exits[0] if exits else None


def _of_rank(failure: Outcome, rank: int) -> Outcome:
    message = (
        failure.message if f"rank {rank}" in failure.message.lower() else f"Rank {rank}: {failure.message}"
    )
    return failure.model_copy(update={"rank": rank, "message": message})


def _crash(first: RankExit) -> Outcome:
    code = -first.signal if first.signal is not None else first.exit_code or 0
    message = f"Rank {first.rank} {_how_left(code)} without giving a reason. Read its log."
    return Outcome(code=EndCode.CRASHED, message=message, rank=first.rank)


def _how_left(code: int) -> str:
    if code >= 0:
        return f"left with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = " (the kernel sends it when memory runs out)" if name == "SIGKILL" else ""
    return f"was ended by {name}{hint}"
