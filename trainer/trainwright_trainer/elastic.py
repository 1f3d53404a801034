"""The launcher: starts one process a slot and tells how those that failed left.

It is a few lines around torch's own elastic launch, without its restarts: each restart is a new attempt with a folder
of its own, and not this process's decision. Ranks are forked on a CPU, where nothing of torch has run yet, and
are there in a fifth of a second; with CUDA, which does not survive a fork, they are spawned.
"""

from __future__ import annotations

import os
from pathlib import Path

from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from trainwright.contracts.job_spec import (
    LOGS_FOLDER,
    OUTCOME_NAME,
    RANKS_NAME,
    JobSpec,
    RankExit,
    RankExits,
    failure_name,
    output_folder,
)
from trainwright_trainer.ends import read_job, write_failure
from trainwright_trainer.rank import run_rank
from trainwright_trainer.stop import become_parent


def launch(job_file: Path) -> int:
    """Run the job's ranks to their end; returns the exit code of this process: 0 for a planned end."""
    out = output_folder(job_file)
    out.mkdir(parents=True, exist_ok=True)
    try:
        job = read_job(job_file)
        _begin_attempt(out, job)
        become_parent()
        elastic_launch(_config(job), run_rank)(str(job_file))
    except ChildFailedError as error:
        _write_exits(out, error)
        return 1
    except SignalException as error:
        return 128 + error.sigval
    except Exception as error:
        write_failure(out, 0, error)
        return 1
    return 0


def _begin_attempt(out: Path, job: JobSpec) -> None:
    """Make the folders, and let no word of an earlier attempt stand."""
    (out / LOGS_FOLDER).mkdir(exist_ok=True)
    for name in (OUTCOME_NAME, RANKS_NAME, *(failure_name(rank) for rank in range(job.ranks))):
        (out / name).unlink(missing_ok=True)


def _config(job: JobSpec) -> LaunchConfig:
    # All ranks are on this machine: a free port and the loopback interface keep them to themselves.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    return LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=job.ranks,
        start_method="fork" if job.device == "cpu" else "spawn",
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        local_addr="127.0.0.1",
        run_id=job.run_id,
        max_restarts=0,
        monitor_interval=0.1,
        # Ranks log into out/logs themselves; otherwise each launch would leave a folder in the machine's own for drafts.
        logs_specs=DefaultLogsSpecs(log_dir=os.devnull),
    )


def _write_exits(out: Path, error: ChildFailedError) -> None:
    exits = [
        RankExit(
            rank=rank,
            exit_code=failure.exitcode if failure.exitcode >= 0 else None,
            signal=-failure.exitcode if failure.exitcode < 0 else None,
            time=float(failure.timestamp),
        )
        for rank, failure in sorted(error.failures.items(), key=lambda item: item[1].timestamp)
    ]
    draft = out / f"{RANKS_NAME}.tmp"
    draft.write_text(RankExits(exits=exits).model_dump_json())
    draft.rename(out / RANKS_NAME)
