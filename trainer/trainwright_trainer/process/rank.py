"""One rank: a process that trains its share of a job and reports in a file how it ended."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.events import Note
from trainwright.contracts.hardware import RANK_PROCESS_PREFIX
from trainwright.contracts.job_spec import LOGS_FOLDER, STOP_NAME, Outcome, log_name, output_folder
from trainwright.contracts.rank_progress import PROGRESS_FOLDER, RankActivity, progress_file_name
from trainwright_trainer.distributed.mesh import join_mesh
from trainwright_trainer.distributed.progress_counters import publish_progress
from trainwright_trainer.observe.events import now
from trainwright_trainer.process.job_file import read_job
from trainwright_trainer.process.outcome import (
    FailureReport,
    release_failure_file,
    reserve_failure_file,
    write_outcome,
)
from trainwright_trainer.process.signals import (
    allow_stacks_to_be_read,
    die_with_parent,
    exit_on_sigterm,
    name_process,
)
from trainwright_trainer.runtime.errors import DivergedError
from trainwright_trainer.training.build import Training, build
from trainwright_trainer.training.engine import ShouldStop, never_stop
from trainwright_trainer.training.loop import train


def run_rank(job_file: str) -> None:
    """Entry point of every rank; the launcher's environment variables say which one this is."""
    die_with_parent()
    exit_on_sigterm()
    rank, out = int(os.environ["RANK"]), output_folder(Path(job_file))
    name_process(f"{RANK_PROCESS_PREFIX}{rank}")
    _redirect_output(out / LOGS_FOLDER / log_name(rank))
    allow_stacks_to_be_read()
    print(f"rank {rank} of {os.environ['WORLD_SIZE']}, pid {os.getpid()}", flush=True)
    with FailureReport(out, rank) as report:
        reserve_failure_file(out, rank)
        _train(Path(job_file), out, report)
        release_failure_file(out, rank)
    if report.failed:
        # Threads and communicators of a failed rank may never end on their own.
        os._exit(1)


def _train(job_file: Path, out: Path, report: FailureReport) -> None:
    job = read_job(job_file)
    progress = publish_progress(out / PROGRESS_FOLDER / progress_file_name(int(os.environ["RANK"])))
    mesh = join_mesh(job, progress)
    training = build(job, job_file, mesh)
    report.last_step = lambda: training.step
    outcome = _train_to_outcome(training, _stop_requested(job_file, mesh.rank))
    progress.set_activity(RankActivity.ENDING)
    if mesh.leads_node:
        write_outcome(out, outcome)
    mesh.world.barrier()
    mesh.destroy()


def _stop_requested(job_file: Path, rank: int) -> ShouldStop:
    """Whether the stop file exists. Only rank 0 looks, so the ranks need not see the file at the same moment."""
    return (job_file.parent / STOP_NAME).exists if rank == 0 else never_stop


def _train_to_outcome(training: Training, should_stop: ShouldStop) -> Outcome:
    try:
        return train(training, should_stop)
    except DivergedError as error:
        failed = training.step + 1
        batch = training.loader.describe_batch(failed)
        message = f"Step {failed} made the run diverge: {error}. It trained on {batch}."
        training.report(Note(time=now(), message=message))
        return Outcome(
            code=EndCode.DIVERGED,
            message=f"Training diverged at step {failed:,}: {error.cause}.",
            step=training.step,
            sequences_read=training.loader.sequences_read(failed),
        )


def _redirect_output(path: Path) -> None:
    """Redirect the output of this process, and of every library in it, to the rank's log."""
    sys.stdout.flush()
    sys.stderr.flush()
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
