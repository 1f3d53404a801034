"""The launcher: starts one process per slot and reports how failed ranks exited.

It wraps torch's elastic launch without its restarts: a restart is a new attempt with its own folder, and this process
does not decide that. CPU ranks are forked before torch has run and start in a fifth of a second. CUDA does not survive
a fork, so GPU ranks are spawned.
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
from trainwright.durable_files import SHARED, write_durably
from trainwright_trainer.process.batch_reader import reader_of_node
from trainwright_trainer.process.job_file import read_job
from trainwright_trainer.process.outcome import FailureReport
from trainwright_trainer.process.rank import run_rank
from trainwright_trainer.process.signals import announce_parent
from trainwright_trainer.runtime.devices import use_expandable_segments


def launch(job_file: Path) -> int:
    """Run the job's ranks until they end; returns this process's exit code, 0 for a planned end."""
    out = output_folder(job_file)
    out.mkdir(parents=True, exist_ok=True)
    with FailureReport(out, rank=0):
        try:
            job = read_job(job_file)
            _begin_attempt(out, job)
            announce_parent()
            with reader_of_node(job, job_file):
                elastic_launch(launch_config(job), run_rank)(str(job_file))
        except ChildFailedError as error:
            _write_exits(out, error)
            return 1
        except SignalException as error:
            return 128 + error.sigval
        return 0
    return 1


def _begin_attempt(out: Path, job: JobSpec) -> None:
    """Create the folders and remove outcome files of an earlier attempt."""
    (out / LOGS_FOLDER).mkdir(exist_ok=True)
    for name in (OUTCOME_NAME, RANKS_NAME, *(failure_name(rank) for rank in job.local_ranks)):
        (out / name).unlink(missing_ok=True)


def launch_config(job: JobSpec) -> LaunchConfig:
    # If all ranks are on this machine, a free port and the loopback interface are enough.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", job.interface or "lo")
    os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={job.interface or 'lo'}")  # = is not a prefix
    if job.device == "cuda":
        use_expandable_segments()
    return LaunchConfig(
        min_nodes=job.nodes,
        max_nodes=job.nodes,
        nproc_per_node=len(job.slots),
        start_method="fork" if job.device == "cpu" else "spawn",
        rdzv_backend="static" if job.rendezvous else "c10d",
        rdzv_endpoint=job.rendezvous or "127.0.0.1:0",
        rdzv_configs={"rank": job.node_rank} if job.rendezvous else {},
        local_addr=None if job.rendezvous else "127.0.0.1",
        run_id=job.run_id,
        max_restarts=0,
        monitor_interval=0.1,
        # Ranks write their own logs in out/logs; otherwise each launch would leave a temporary folder behind.
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
    write_durably(out / RANKS_NAME, RankExits(exits=exits).model_dump_json().encode(), SHARED)
