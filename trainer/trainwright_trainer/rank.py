"""One rank: a process that trains its share of a job and says in a file how it ended."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import NoReturn

from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.job_spec import LOGS_FOLDER, STOP_NAME, Outcome, log_name, output_folder
from trainwright_trainer.build import Training, build
from trainwright_trainer.ends import (
    DivergedError,
    read_job,
    release_last_words,
    reserve_last_words,
    write_failure,
    write_outcome,
)
from trainwright_trainer.engine import Asked, nobody_asks
from trainwright_trainer.loop import train
from trainwright_trainer.mesh import RankLostError, join_mesh
from trainwright_trainer.stop import die_with_parent, leave_on_sigterm

_WITNESS_SECONDS = 2.0
"""How long a rank that lost another one waits: the launcher sees within a tenth of it who left first, and why."""


def run_rank(job_file: str) -> None:
    """Entry of every rank; the launcher's environment says which one this is."""
    die_with_parent()
    leave_on_sigterm()
    rank, out = int(os.environ["RANK"]), output_folder(Path(job_file))
    _log_to(out / LOGS_FOLDER / log_name(rank))
    print(f"rank {rank} of {os.environ['WORLD_SIZE']}, pid {os.getpid()}", flush=True)
    try:
        reserve_last_words(out, rank)
        _train(Path(job_file), out)
        release_last_words(out, rank)
    except Exception as error:
        _leave(out, rank, error, step=None)


def _train(job_file: Path, out: Path) -> None:
    job = read_job(job_file)
    mesh = join_mesh(job)
    training = build(job, job_file, mesh)
    try:
        outcome = _planned_end(training, _asked(job_file, mesh.rank))
        if mesh.rank == 0:
            write_outcome(out, outcome)
        mesh.world.barrier()
        mesh.leave()
    except Exception as error:
        _leave(out, mesh.rank, error, training.step)


def _asked(job_file: Path, rank: int) -> Asked:
    """Whether the stop file is there. Rank 0 alone looks, so that the ranks need not see it at the same moment."""
    return (job_file.parent / STOP_NAME).exists if rank == 0 else nobody_asks


def _planned_end(training: Training, asked: Asked) -> Outcome:
    try:
        return train(training, asked)
    except DivergedError as error:
        message = f"Step {training.step + 1}: {error}."
        return Outcome(code=EndCode.DIVERGED, message=message, step=training.step)


def _leave(out: Path, rank: int, error: Exception, step: int | None) -> NoReturn:
    """Say why this rank fails after ``step`` and end its process."""
    if isinstance(error, RankLostError):
        time.sleep(_WITNESS_SECONDS)
    write_failure(out, rank, error, step)
    # Threads and communicators of a failed rank may never end by themselves.
    os._exit(1)


def _log_to(path: Path) -> None:
    """Send this process's output, and that of every library in it, to the rank's log."""
    sys.stdout.flush()
    sys.stderr.flush()
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
