"""A run whose ranks are held at a step until a person has changed its layout, and of which one is then killed."""

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

from tests.live import Live, eventually, marked_processes
from trainwright.contracts.job_spec import JOB_NAME, JobSpec

VICTIM = 3
PATIENCE_SECONDS = 300.0


@contextmanager
def killed_in_its_first_layout(live: Live, at_step: int) -> Iterator[list[JobSpec]]:
    """Hold the platform's one run at ``at_step``, kill a rank once its layout was changed, and let the others go.

    Yields:
        Where the jobs of its two attempts stand after the block.
    """
    jobs: list[JobSpec] = []
    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(_hold_and_kill, live, at_step, jobs)
        yield jobs
        watching.result(timeout=PATIENCE_SECONDS)


def _hold_and_kill(live: Live, at_step: int, jobs: list[JobSpec]) -> None:
    eventually(lambda: _step(live) >= at_step, "the run is under way", PATIENCE_SECONDS)
    run_id = live.team.runs()[0].id
    jobs.append(_job(live, 1))
    ranks = _ranks(live)
    try:
        for pid in ranks.values():
            os.kill(pid, signal.SIGSTOP)
        eventually(lambda: _was_laid_out_anew(live, run_id), "the layout is changed", PATIENCE_SECONDS)
        os.kill(ranks[VICTIM], signal.SIGKILL)
    finally:
        for pid in ranks.values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    jobs.append(_job(live, 2))


def _step(live: Live) -> int:
    return max((run.summary.step for run in live.team.runs()), default=0)


def _was_laid_out_anew(live: Live, run_id: str) -> bool:
    return any(event.type == "layout" for event in live.team.events(run_id))


def _ranks(live: Live) -> dict[int, int]:
    """Pid by rank, as each says in the first line of its log."""
    alive = set(marked_processes(live.platform.folder.path))
    found = {}
    for log in live.platform.folder.path.rglob("out/logs/rank-*.log"):
        words = log.open().readline().replace(",", "").split()  # rank 0 of 4, pid 123
        if words and int(words[-1]) in alive:
            found[int(words[1])] = int(words[-1])
    return found


def _job(live: Live, attempt: int) -> JobSpec:
    """What the node was told to do, from the folder of the attempt."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        with suppress(FileNotFoundError, ValueError):  # folders go while they are looked through
            for file in live.platform.folder.path.rglob(JOB_NAME):
                job = JobSpec.model_validate_json(file.read_bytes())
                if job.attempt == attempt:
                    return job
        time.sleep(0.02)
    raise AssertionError(f"attempt {attempt} does not begin")
