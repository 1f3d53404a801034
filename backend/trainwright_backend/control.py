"""The control loop: the one thread that looks at all runs, and does what no message does.

It places queued runs, repeats hints, takes back unclaimed placements, wakes runs from their back-off, reaps lapsed
leases, counts how long slots are occupied, sends again for data that makes no progress, and deletes bytes that no row
names. It needs no broker. Of all API processes one leads, by an advisory lock of PostgreSQL or a file lock beside
SQLite's database; both go with the process.

Leases are reaped by this process's own monotonic clock: a placement has lapsed when its renewal *number* stood still
for one lease while this loop was watching. At the start, and when the loop itself was late, it has not been watching,
so it forgets what it saw. Wall clocks play no part.
"""

import fcntl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import BinaryIO, Concatenate, ParamSpec
from uuid import UUID

import structlog
from sqlalchemy import Connection, Select, delete, select, text
from sqlalchemy.exc import SQLAlchemyError

from trainwright.contracts.agent_protocol import Timers
from trainwright.contracts.run_state import RunState
from trainwright_backend.checkpoints.forks import fail_lost, lost_beginnings
from trainwright_backend.checkpoints.service import drop_uncommitted
from trainwright_backend.core.db import Database, Write, now
from trainwright_backend.core.doomed import DoomedBytes
from trainwright_backend.core.errors import AppError
from trainwright_backend.core.settings import Settings
from trainwright_backend.core.storage import LocalStore
from trainwright_backend.datasets.messages import resend_stale
from trainwright_backend.nodes.ends import lapse
from trainwright_backend.nodes.placement import (
    due_hints,
    explain,
    fail_unprepared,
    place,
    plan,
    take_back,
    unclaimed,
    unprepared,
)
from trainwright_backend.runs.charging import count_time, due_for_counting
from trainwright_backend.runs.moves import lock_run, move
from trainwright_backend.runs.tables import Placement, Run
from trainwright_backend.runs.wake import CONTROL_TOPIC
from trainwright_backend.uploads.receiving import sweep_partials
from trainwright_backend.uploads.service import drop_expired, expired_uploads

ADVISORY_LOCK = 0x7472_6169_6E77  # "trainw"
SWEEP_BYTES_AGAIN_SECONDS = 300.0
SHORTEST_PAUSE_SECONDS = 0.02
"""Between two rounds, however often somebody pokes."""

LONGEST_PASS_SECONDS = 60.0
"""And a dozen sweeps, where those are longer. A loop that takes more to come round is told by `/health`."""

P = ParamSpec("P")

log = structlog.get_logger()


@dataclass(frozen=True)
class Sighting:
    """When a placement was first seen with its present renewal number."""

    renewal: int
    since: float


class ControlLoop:
    """The thread. One of all in the installation leads; the others wait for its end."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        store: LocalStore,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._timers = settings.timers
        self._store = store
        self._clock = clock
        self._came_round = clock()
        self._leader = Leader(database, settings)
        self._reaper = Reaper(database, settings.timers, clock)
        self._poked = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)

    def start(self) -> None:
        """Begin, and be poked by every commit that gives the loop something to do."""
        with self._database.read() as session:
            session.info["topics"].listen(CONTROL_TOPIC, self._poked.set)
        self._came_round = self._clock()
        self._thread.start()

    def idle_seconds(self) -> float:
        """How long ago a pass was completed, be it that another process leads. It grows while the thread is stuck or dead."""
        return self._clock() - self._came_round

    def longest_pass_seconds(self) -> float:
        """After how long without a completed pass something is wrong."""
        return max(LONGEST_PASS_SECONDS, 12 * self._timers.sweep_seconds)

    def stop(self) -> None:
        """End after the round at hand."""
        self._stopping.set()
        self._poked.set()
        self._thread.join()

    def _run(self) -> None:
        next_sweep = time.monotonic()
        while not self._stopping.is_set():
            due = time.monotonic() >= next_sweep
            if due:
                next_sweep = time.monotonic() + self._timers.sweep_seconds
            if guarded(partial(self._lead, sweep=due)):
                self._came_round = self._clock()
            self._poked.wait(max(next_sweep - time.monotonic(), 0))
            self._poked.clear()
            self._stopping.wait(SHORTEST_PAUSE_SECONDS)
        self._leader.resign()

    def _lead(self, *, sweep: bool) -> None:
        if self._leader.leads():
            self.round(sweep=sweep)

    def round(self, *, sweep: bool) -> None:
        """Place what fits; with ``sweep``, do everything else too. What fails is tried again in the next one."""
        steps: list[Callable[[], object]] = [self._place]
        if sweep:
            steps = [
                self._reaper.sweep,
                lambda: self._each(unclaimed(self._timers), take_back),
                lambda: self._each(due_for_retry(), requeue),
                lambda: self._each(unprepared(), fail_unprepared),
                lambda: self._each(lost_beginnings(), fail_lost),
                *steps,
                lambda: self._each(due_for_counting(), count_time),
                self._in_transaction(due_hints, self._timers),
                self._in_transaction(resend_stale),
                self._in_transaction(drop_uncommitted),
                lambda: self._each(expired_uploads(), drop_expired),
                lambda: sweep_partials(self._database, self._store),
                lambda: sweep_bytes(self._database, self._store),
                self._store.sweep_incoming,
            ]
        for step in steps:
            guarded(step)

    def _place(self) -> None:
        """Choose for all in one snapshot, then do it run by run, each checked again in its own transaction."""
        with self._database.read() as session:
            planned = plan(session, self._timers)
        for run_id, node_id in planned.seats.items():
            guarded(self._in_transaction(place, run_id, node_id, self._timers), run=str(run_id))
        if planned.reasons:
            self._in_transaction(explain, planned.reasons)()

    def _each(self, wanted: Select[UUID], work: Callable[[Write, UUID], object]) -> None:
        """A transaction for each id: one that fails keeps no other from its turn, and no two runs are locked at once."""
        with self._database.read() as session:
            ids = session.scalars(wanted).all()
        for one in ids:
            guarded(self._in_transaction(work, one), id=str(one))

    def _in_transaction(
        self, work: Callable[Concatenate[Write, P], object], *args: P.args, **named: P.kwargs
    ) -> Callable[[], None]:
        def step() -> None:
            with self._database.write() as session:
                work(session, *args, **named)

        return step


def guarded(work: Callable[[], object], **about: str) -> bool:
    """Do ``work``, and say whether it was done. What fails is logged, and is tried again in a later round."""
    try:
        work()
        return True
    except (AppError, SQLAlchemyError, OSError) as error:
        log.warning("the control loop could not do a step", error=str(error), **about)
    except Exception:
        # A defect that one run brings out must not stop the others: without this thread nothing is placed and nothing
        # is reaped. It stays loud: a traceback in the log of every round.
        log.exception("a defect in the control loop", **about)
    return False


class Reaper:
    """Closes placements whose lease lapsed."""

    def __init__(
        self, database: Database, timers: Timers, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._database = database
        self._timers = timers
        self._clock = clock
        self._seen: dict[UUID, Sighting] = {}
        self._last_sweep: float | None = None

    def sweep(self) -> None:
        """Look at all open claims once."""
        at = self._clock()
        late = self._last_sweep is None or at - self._last_sweep > 3 * self._timers.sweep_seconds
        if late:  # it was not watching: nobody may be blamed for the time in between
            self._seen.clear()
        self._last_sweep = at
        open_claims = select(Placement.id, Placement.renewal, Placement.lease_seconds).where(
            Placement.claim_id.is_not(None), Placement.closed.is_(None)
        )
        with self._database.read() as session:
            rows = session.execute(open_claims).all()
        self._seen = {row.id: self._sighting(row.id, row.renewal, at) for row in rows}
        for placement_id, renewal, lease_seconds in rows:
            lease = lease_seconds or self._timers.lease_seconds
            if at - self._seen[placement_id].since >= lease:
                guarded(partial(self._reap, placement_id, renewal), placement=str(placement_id))

    def _sighting(self, placement_id: UUID, renewal: int, at: float) -> Sighting:
        earlier = self._seen.get(placement_id)
        return earlier if earlier is not None and earlier.renewal == renewal else Sighting(renewal, at)

    def _reap(self, placement_id: UUID, renewal: int) -> None:
        with self._database.write() as session:
            if lapse(session, placement_id, renewal, self._timers):
                log.warning("a lease lapsed", placement=str(placement_id), renewal=renewal)


class Leader:
    """Whether this process's loop is the one that works."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._lock_file = settings.data_dir / "control.lock"
        self._connection: Connection | None = None
        self._file: BinaryIO | None = None

    def leads(self) -> bool:
        """Lead, if nobody else does. Who cannot ask does not lead."""
        try:
            return self._holds_file() if self._database.is_sqlite else self._holds_advisory_lock()
        except (SQLAlchemyError, OSError) as error:
            log.warning("the control loop cannot ask whether it leads", error=str(error))
            if self._connection is not None:
                self._drop(self._connection)
            return False

    def resign(self) -> None:
        """Let another one lead, at once: the server may notice a little later that a connection is gone."""
        if self._connection is not None:
            with suppress(SQLAlchemyError):
                self._connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": ADVISORY_LOCK})
            self._drop(self._connection)
        if self._file is not None:
            self._file.close()
            self._file = None

    def _holds_file(self) -> bool:
        if self._file is not None:
            return True
        self._lock_file.parent.mkdir(parents=True, exist_ok=True)
        file = self._lock_file.open("wb")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return False
        self._file = file
        return True

    def _holds_advisory_lock(self) -> bool:
        """The lock belongs to a connection: while that answers, the lock is held."""
        if self._connection is not None:
            self._connection.execute(text("SELECT 1"))
            return True
        self._connection = self._database.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        asked = text("SELECT pg_try_advisory_lock(:key)")
        if self._connection.execute(asked, {"key": ADVISORY_LOCK}).scalar_one():
            return True
        self._connection.close()
        self._connection = None
        return False

    def _drop(self, connection: Connection) -> None:
        """Really close it: back in the pool it would keep the lock."""
        connection.invalidate()
        connection.close()
        self._connection = None


def due_for_retry() -> Select[UUID]:
    """The runs whose back-off is over."""
    return select(Run.id).where(Run.state == RunState.RETRY_WAIT, Run.retry_at <= now())


def requeue(session: Write, run_id: UUID) -> None:
    """Queue a run whose back-off is over."""
    run = lock_run(session, run_id)
    if run is not None and run.state is RunState.RETRY_WAIT:
        move(session, run, RunState.QUEUED, "tries again")


def sweep_bytes(database: Database, store: LocalStore) -> None:
    """Delete the folders whose rows are gone, again until no signed link to them is good any more."""
    with database.read() as session:
        due = session.scalars(select(DoomedBytes).where(DoomedBytes.next_sweep <= now())).all()
        folders = [(row.prefix, row.last_sweep) for row in due]
    for prefix, last_sweep in folders:
        guarded(partial(_sweep_folder, database, store, prefix, last_sweep), folder=prefix)


def _sweep_folder(database: Database, store: LocalStore, prefix: str, last_sweep: datetime) -> None:
    with suppress(FileNotFoundError):
        store.delete_prefix(prefix)
    with database.write() as session:
        if now() >= last_sweep:
            session.execute(delete(DoomedBytes).where(DoomedBytes.prefix == prefix))
        else:
            again = min(now() + timedelta(seconds=SWEEP_BYTES_AGAIN_SECONDS), last_sweep)
            session.get_one(DoomedBytes, prefix).next_sweep = again
