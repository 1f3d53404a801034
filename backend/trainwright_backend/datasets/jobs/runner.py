"""Running the jobs of one worker process: one at a time, in turns of teams.

Both the broker's messages and the worker's own sweep call this module, so data is prepared while the broker is down.
Long jobs give way to other teams after a slice of time, between two chunks. Parsing stops and is continued in its
team's next turn; applying a curation cannot stop without starting over, so others' jobs run in between, except their
curations.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from trainwright_backend.core.background import run_logging_errors
from trainwright_backend.core.db import Database
from trainwright_backend.core.errors import AppError
from trainwright_backend.core.object_store import ObjectStore
from trainwright_backend.datasets.job_queue import JobKind
from trainwright_backend.datasets.jobs.dispatch import never, run_job
from trainwright_backend.datasets.jobs.job import Job
from trainwright_backend.datasets.jobs.outcomes import record_failure, release_job
from trainwright_backend.datasets.jobs.round_robin import RoundRobin, TakenJob, TimeSlice

SWEEP_SECONDS = 5.0


class JobRunner:
    """Runs jobs for any thread of the process, one after the other."""

    def __init__(self, database: Database, store: ObjectStore) -> None:
        self._database = database
        self._store = store
        self._turns = RoundRobin(database)
        self._running = threading.Lock()
        self._stopping = threading.Event()

    def run_one(self) -> bool:
        """Run the next job. Returns whether there was one."""
        with self._running:
            taken = self._turns.take()
            if taken is not None:
                self._run(taken, self.give_way_of(taken))
            return taken is not None

    def sweep_until_stopped(self) -> None:
        """Run due jobs every few seconds, with or without a message."""
        while not self._stopping.wait(SWEEP_SECONDS):
            run_logging_errors(self._run_all, "looking for jobs failed", expected=(AppError,))

    def stop(self) -> None:
        """End the sweep. A job that runs is given back after its current chunk."""
        self._stopping.set()

    def _run_all(self) -> None:
        while not self._stopping.is_set() and self.run_one():
            pass

    def _run(self, taken: TakenJob, give_way: Callable[[], bool]) -> None:
        run_and_record_failure(self._database, self._store, taken.job, give_way, self._stopping.is_set)

    def give_way_of(self, taken: TakenJob) -> Callable[[], bool]:
        """The job calls this between two chunks; the result says whether the job stops there."""
        others_wait = partial(self._turns.others_wait, taken.team_id)
        if taken.kind is not JobKind.CURATE:
            return TimeSlice(others_wait).is_over
        current = TimeSlice(others_wait)

        def run_one_of_others() -> bool:
            nonlocal current
            if current.is_over():
                self._run_one_besides(taken)
                current = TimeSlice(others_wait)
            return False

        return run_one_of_others

    def _run_one_besides(self, outer: TakenJob) -> None:
        inner = self._turns.take(not_of=outer.team_id, kinds=(JobKind.PARSE, JobKind.PREPARE))
        if inner is not None:
            self._run(inner, TimeSlice(lambda: True).is_over)


def run_and_record_failure(
    database: Database,
    store: ObjectStore,
    job: Job,
    give_way: Callable[[], bool] = never,
    is_stopping: Callable[[], bool] = never,
) -> None:
    """As `run_job`, with an unexpected error logged, and recorded at the job's row."""
    error = run_logging_errors(
        partial(run_job, database, store, job, give_way, is_stopping),
        "job failed",
        expected=(AppError,),
        row=str(job.lease.owner_id),
        job=type(job).__name__,
    )
    if isinstance(error, AppError):
        with suppress(AppError):
            release_job(database, job)
    elif error is not None:
        record_failure(database, job, error)
