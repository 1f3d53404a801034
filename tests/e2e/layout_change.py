"""A run whose ranks are stopped at a step until a person has changed its layout. Then one of them is killed."""

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

from tests.live import Live, eventually, marked_processes
from trainwright.client import TeamClient
from trainwright.contracts.job_spec import JOB_NAME, JobSpec

VICTIM = 3
TIMEOUT_SECONDS = 300.0


@contextmanager
def killed_in_its_first_layout(live: Live, team: TeamClient, at_step: int) -> Iterator[list[JobSpec]]:
    """Stop the team's only run at ``at_step``, kill a rank once its layout was changed, and continue the others.

    Yields:
        A list that has the jobs of the run's two attempts after the block.
    """
    jobs: list[JobSpec] = []
    with ThreadPoolExecutor(1) as pool:
        killing = pool.submit(_stop_and_kill, live, team, at_step, jobs)
        yield jobs
        killing.result(timeout=TIMEOUT_SECONDS)


def _stop_and_kill(live: Live, team: TeamClient, at_step: int, jobs: list[JobSpec]) -> None:
    eventually(lambda: _step(team) >= at_step, "the run trains", TIMEOUT_SECONDS)
    run_id = team.runs()[0].id
    jobs.append(_job(live, run_id, 1))
    ranks = _ranks(live)
    try:
        for pid in ranks.values():
            os.kill(pid, signal.SIGSTOP)
        eventually(lambda: _layout_changed(team, run_id), "the layout is changed", TIMEOUT_SECONDS)
        os.kill(ranks[VICTIM], signal.SIGKILL)
    finally:
        for pid in ranks.values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    jobs.append(_job(live, run_id, 2))


def _step(team: TeamClient) -> int:
    return max((run.summary.step for run in team.runs()), default=0)


def _layout_changed(team: TeamClient, run_id: str) -> bool:
    return any(event.type == "layout" for event in team.events(run_id))


def _ranks(live: Live) -> dict[int, int]:
    """Pid by rank, from the first line of each rank's log."""
    alive = set(marked_processes(live.platform.folder.path))
    found = {}
    for log in live.platform.folder.path.rglob("out/logs/rank-*.log"):
        words = log.open().readline().replace(",", "").split()  # rank 0 of 4, pid 123
        if words and int(words[-1]) in alive:
            found[int(words[1])] = int(words[-1])
    return found


def _job(live: Live, run_id: str, attempt: int) -> JobSpec:
    """The job that the node was given, from the attempt's folder."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        with suppress(FileNotFoundError, ValueError):  # folders disappear during the search
            for file in live.platform.folder.path.rglob(JOB_NAME):
                job = JobSpec.model_validate_json(file.read_bytes())
                if (
                    job.attempt == attempt and job.spec.degrees.ranks == 4
                ):  # others' folders may not be gone yet
                    return job
        time.sleep(0.02)
    raise AssertionError(f"attempt {attempt} does not begin")
