"""Saving the stacks of all ranks of a hang as a log of the run.

py-spy reads them, even from a process that is stopped or stuck. If the kernel does not permit that, a signal asks the
rank to write its Python stacks to its own log. A stopped rank cannot do that.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil

from trainwright.contracts.hardware import RANK_PROCESS_PREFIX
from trainwright.contracts.job_spec import LOGS_FOLDER, OUTPUT_FOLDER, log_name
from trainwright.contracts.rank_progress import STACKS_SIGNAL
from trainwright_agent import processes
from trainwright_agent.untrusted_files import opened_folder

DUMP_SECONDS = 10.0
"""Longest time for the stacks of one rank."""
_AT_ONCE = 4
_MAX_STACKS_LENGTH = 256 * 2**10
_STOPPED = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)


def rank_pids(marker: str) -> dict[int, int]:
    """The processes of the attempt's ranks on this node, by rank."""
    found: dict[int, int] = {}
    for pid in sorted(processes.pids_of(marker), reverse=True):  # a rank is older than what it forks
        with suppress(psutil.Error):
            name = psutil.Process(pid).name()
            if (number := name.removeprefix(RANK_PROCESS_PREFIX)) != name and number.isdecimal():
                found[int(number)] = pid
    return found


def stopped_ranks(marker: str) -> set[int]:
    """The ranks whose processes are stopped by a signal or a debugger."""
    found = set()
    for rank, pid in rank_pids(marker).items():
        with suppress(psutil.Error):
            if psutil.Process(pid).status() in _STOPPED:
                found.add(rank)
    return found


def keep_stacks(folder: Path, file: str, marker: str) -> None:
    """Append the stacks of the attempt's ranks on this node to its log ``file``."""
    pids = rank_pids(marker)
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="stacks") as pool:
        texts = pool.map(partial(_stacks_of, marker, pids), sorted(pids))
        content = "\n".join(texts)
    with opened_folder(folder, OUTPUT_FOLDER, LOGS_FOLDER) as logs:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(file, flags, 0o644, dir_fd=logs)
    with os.fdopen(descriptor, "w") as log:
        log.write(content)


def _stacks_of(marker: str, pids: Mapping[int, int], rank: int) -> str:
    pid = pids[rank]
    # Without --nonblocking py-spy would stop the process first, and wait for ever if it is stopped already.
    command = [str(Path(sys.executable).with_name("py-spy")), "dump", "--nonblocking", "--pid", str(pid)]
    try:
        dump = subprocess.run(
            command,
            env=processes.child_environment(marker),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=DUMP_SECONDS,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        return _ask_rank(marker, rank, pid, error.stderr.decode(errors="replace").strip())
    except (subprocess.TimeoutExpired, OSError) as error:
        return _ask_rank(marker, rank, pid, str(error))
    return f"Rank {rank}:\n{dump.stdout.decode(errors='replace')[:_MAX_STACKS_LENGTH]}"


def _ask_rank(marker: str, rank: int, pid: int, why: str) -> str:
    """Ask the rank to write its stacks to its own log; returns a sentence that says so."""
    processes.send_signal(pid, signal.Signals[STACKS_SIGNAL], lambda: pid in processes.pids_of(marker))
    return (
        f"Rank {rank}: py-spy could not read its stacks ({why[:500]}). It was asked to write them to {log_name(rank)}. "
        "It cannot do that while it is stopped.\n"
    )
