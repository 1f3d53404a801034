"""The control loop: the only thread that checks all runs and does the work that no message triggers.

It places queued runs, makes borrowing runs leave for others, repeats hints, withdraws unclaimed placements, empties drained
nodes, requeues runs after their back-off, closes placements whose lease expired, meters how long slots are occupied, pauses runs that
reach a limit, resends data jobs that make no
progress, and deletes bytes that no row refers to. It needs no broker. One of all API processes leads (`leader`).
"""

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Concatenate, ParamSpec
from uuid import UUID

from sqlalchemy import Select

from trainwright_backend.attempts.retry_policy import due_for_retry, requeue
from trainwright_backend.checkpoints.fork import fail_fork_without_resume_point, forks_without_resume_point
from trainwright_backend.checkpoints.service import drop_uncommitted
from trainwright_backend.control.leader import Leader
from trainwright_backend.control.lease_reaper import LeaseReaper
from trainwright_backend.control.limit_enforcement import enforce_limits
from trainwright_backend.control.queued_deletions import delete_queued_bytes
from trainwright_backend.control.run_step import run_step
from trainwright_backend.control.worker_watch import WorkerWatch
from trainwright_backend.core.counters import LAST_ROUND, ROUNDS
from trainwright_backend.core.db import Database, Write
from trainwright_backend.core.object_store import ObjectStore
from trainwright_backend.core.settings import Settings
from trainwright_backend.datasets.job_queue import resend_stale
from trainwright_backend.runs.max_time import limited_runs, pause_at_max_time
from trainwright_backend.runs.metering import due_for_metering, meter_run
from trainwright_backend.runs.notify import CONTROL_TOPIC
from trainwright_backend.scheduling.durations import MeasuredRates
from trainwright_backend.scheduling.moving import move_off_drained, runs_on_emptied_nodes
from trainwright_backend.scheduling.placement import (
    explain,
    fail_unprepared,
    place,
    repeat_hints,
    unclaimed,
    unprepared,
    withdraw,
)
from trainwright_backend.scheduling.placement_round import plan_round
from trainwright_backend.scheduling.preemption import preempt
from trainwright_backend.uploads.receiver import sweep_partials
from trainwright_backend.uploads.service import delete_expired_upload, find_expired_uploads

MIN_PAUSE_SECONDS = 0.02
"""Minimum time between two rounds, for any number of notifications. After a longer round the loop rests as long as the round took:
while many runs wait, it leaves at least half of the time to requests of its process."""

MAX_ROUND_SECONDS = 60.0
"""Or a dozen sweeps, if that is longer. `/health` reports a loop that has not completed a round within this time."""

P = ParamSpec("P")


class ControlLoop:
    """The thread. One thread of the installation leads; the others wait until it ends."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        store: ObjectStore,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._timers = settings.timers
        self._min_run_minutes = settings.min_run_minutes
        self._rates = MeasuredRates()
        self._store = store
        self._clock = clock
        self._last_round = clock()
        self.leader = Leader(database, settings)
        self._reaper = LeaseReaper(database, settings.timers, clock)
        self.worker_watch = WorkerWatch(database, clock)
        self._notified = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)

    def start(self) -> None:
        """Start the thread, and have every commit that gives the loop work notify it."""
        with self._database.read() as session:
            session.info["topics"].listen(CONTROL_TOPIC, self._notified.set)
        self._last_round = self._clock()
        self._thread.start()

    def idle_seconds(self) -> float:
        """Seconds since the last completed round, also in a process that does not lead. They grow while the
        thread is stuck or dead."""
        return self._clock() - self._last_round

    def max_idle_seconds(self) -> float:
        """Seconds without a completed round after which something is wrong."""
        return max(MAX_ROUND_SECONDS, 12 * self._timers.sweep_seconds)

    def stop(self) -> None:
        """Stop after the current round."""
        self._stopping.set()
        self._notified.set()
        self._thread.join()

    def _run(self) -> None:
        next_sweep = time.monotonic()
        while not self._stopping.is_set():
            due = time.monotonic() >= next_sweep
            if due:
                next_sweep = time.monotonic() + self._timers.sweep_seconds
            started = time.monotonic()
            if run_step(partial(self.lead_round, sweep=due)):
                self._last_round = self._clock()
            pause = max(time.monotonic() - started, MIN_PAUSE_SECONDS)
            if due:  # also if another process leads: every process answers `/health`
                run_step(self.worker_watch.look)
            self._notified.wait(max(next_sweep - time.monotonic(), 0))
            self._notified.clear()
            self._stopping.wait(min(pause, self._timers.sweep_seconds))
        self.leader.resign()

    def lead_round(self, *, sweep: bool) -> None:
        """A round, if this process leads or now becomes the leader."""
        if self.leader.leads():
            with ROUNDS.labels("sweep" if sweep else "place").time():
                self.run_round(sweep=sweep)
            LAST_ROUND.set_to_current_time()

    def run_round(self, *, sweep: bool) -> None:
        """Place runs that fit; with ``sweep``, do everything else too. Failed work is repeated in a later round."""
        steps: list[Callable[[], object]] = [self._place]
        if sweep:
            steps = [
                self._reaper.sweep,
                lambda: self._each(unclaimed(self._timers), withdraw),
                lambda: self._each(runs_on_emptied_nodes(), move_off_drained),
                lambda: self._each(due_for_retry(), requeue),
                lambda: self._each(unprepared(), fail_unprepared),
                lambda: self._each(forks_without_resume_point(), fail_fork_without_resume_point),
                *steps,
                lambda: self._each(due_for_metering(), meter_run),
                lambda: enforce_limits(self._database),
                lambda: self._each(limited_runs(), pause_at_max_time),
                self._in_transaction(repeat_hints, self._timers),
                self._in_transaction(resend_stale),
                self._in_transaction(drop_uncommitted),
                lambda: self._each(find_expired_uploads(), delete_expired_upload),
                lambda: sweep_partials(self._database, self._store),
                lambda: delete_queued_bytes(self._database, self._store),
                self._store.sweep_incoming,
            ]
        for step in steps:
            run_step(step)

    def _place(self) -> None:
        """Choose nodes for all runs, and runs to pre-empt, in one snapshot. Then each run has its own transaction, which
        checks again."""
        with self._database.read() as session:
            planned = plan_round(session, self._timers, self._min_run_minutes, self._rates)
        for run_id, node_ids in planned.placements.items():
            backfill = planned.backfills.get(run_id)
            run_step(self._in_transaction(place, run_id, node_ids, self._timers, backfill), run=str(run_id))
        for run_id, waiting_id in planned.preemptions.items():
            run_step(self._in_transaction(preempt, run_id, waiting_id), run=str(run_id))
        if planned.reasons:
            self._in_transaction(explain, planned.reasons)()

    def _each(self, wanted: Select[UUID], work: Callable[[Write, UUID], object]) -> None:
        """Use a transaction for each id: one that fails does not stop the others, and no two runs are locked at
        once."""
        with self._database.read() as session:
            ids = session.scalars(wanted).all()
        for row_id in ids:
            run_step(self._in_transaction(work, row_id), id=str(row_id))

    def _in_transaction(
        self, work: Callable[Concatenate[Write, P], object], *args: P.args, **named: P.kwargs
    ) -> Callable[[], None]:
        def step() -> None:
            with self._database.write() as session:
                work(session, *args, **named)

        return step
