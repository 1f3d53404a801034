"""Leases: the expiring right of one worker to run one job.

A job runs without a transaction, so its outcome is written guarded by its lease: a worker that was presumed dead cannot
change anything. While a job runs, a thread renews the lease and reports when the job is cancelled. A cancelled job keeps
its lease until it has stopped; otherwise a second worker would do the same work concurrently.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import ColumnElement, select, update

from trainwright.contracts.api.datasets import PreparationState
from trainwright_backend.core.db import Database, Read, Write, now
from trainwright_backend.core.errors import Busy
from trainwright_backend.datasets.tables import DatasetVersion, ParsedFile, Preparation, PreparationChunk

LEASE_DURATION = timedelta(seconds=60)
RENEWAL_SECONDS = 15.0
POLL_SECONDS = 2.0
"""A job notices within this time that it was cancelled."""

MAX_EXPIRED_LEASES = 3
"""A job that killed this many workers would kill the next one too."""

MAX_FAILURES = 3
"""Errors, such as a full disk, until a row is marked as failed."""

Leased = ParsedFile | DatasetVersion | Preparation | PreparationChunk


@dataclass(frozen=True)
class Lease:
    """The lease in a row of one of four tables."""

    table: type[Leased]
    owner_id: UUID
    """Id of the row; of a chunk, the id of its preparation."""

    token: UUID
    number: int | None = None
    """Number of a chunk."""

    def conditions(self) -> tuple[ColumnElement[bool], ...]:
        """SQL conditions that the row still has this lease."""
        if self.table is PreparationChunk:
            return (
                PreparationChunk.preparation_id == self.owner_id,
                PreparationChunk.number == self.number,
                PreparationChunk.lease == self.token,
            )
        table: Any = self.table
        return (table.id == self.owner_id, table.lease == self.token)


def is_free(row: Leased) -> bool:
    """Whether ``row``, which is locked, has no lease or an expired one."""
    return row.lease is None or row.leased_until is None or row.leased_until < now()


def take(row: ParsedFile | DatasetVersion | Preparation) -> Lease:
    """Take the lease of ``row``, which is locked and free."""
    row.lease, row.leased_until, row.last_activity = uuid4(), now() + LEASE_DURATION, now()
    return Lease(type(row), row.id, row.lease)


def take_chunk(row: PreparationChunk) -> Lease:
    """As `take`, for a chunk."""
    row.lease, row.leased_until = uuid4(), now() + LEASE_DURATION
    return Lease(PreparationChunk, row.preparation_id, row.lease, row.number)


def release(session: Write, lease: Lease) -> bool:
    """Give ``lease`` back; False if it was lost before."""
    release_lease = update(lease.table).where(*lease.conditions()).values(lease=None, leased_until=None)
    return session.change(release_lease) == 1


def renew(session: Write, lease: Lease) -> bool:
    """Extend ``lease``; False if it was lost."""
    owner: Any = Preparation if lease.table is PreparationChunk else lease.table
    # A preparation before its chunk, in the order of all transactions that lock both.
    session.execute(select(owner.id).where(owner.id == lease.owner_id).with_for_update())
    if not session.change(
        update(lease.table).where(*lease.conditions()).values(leased_until=now() + LEASE_DURATION)
    ):
        return False
    session.change(update(owner).where(owner.id == lease.owner_id).values(last_activity=now()))
    return True


def is_active(session: Read, lease: Lease) -> bool:
    """Whether the lease is still valid and its preparation neither cancelled nor failed."""
    if session.scalar(select(lease.table.lease).where(*lease.conditions())) is None:
        return False
    if lease.table not in (Preparation, PreparationChunk):
        return True
    state = session.scalar(select(Preparation.state).where(Preparation.id == lease.owner_id))
    return state in (PreparationState.WAITING, PreparationState.WORKING)


@contextmanager
def held_lease(database: Database, lease: Lease) -> Iterator[Callable[[], bool]]:
    """Renew ``lease`` while the block runs; yields a function that returns whether the job was cancelled."""
    finished, cancelled = threading.Event(), threading.Event()

    def watch() -> None:
        renewed = monotonic()
        while not finished.wait(min(POLL_SECONDS, RENEWAL_SECONDS)):
            with suppress(Busy):
                if monotonic() - renewed >= RENEWAL_SECONDS:
                    with database.write() as session:
                        renewed_lease = renew(session, lease)
                    renewed = monotonic()
                    if not renewed_lease:
                        cancelled.set()
                        return
                with database.read() as session:
                    active = is_active(session, lease)
                if not active:
                    cancelled.set()

    thread = threading.Thread(target=watch, name="lease", daemon=True)
    thread.start()
    try:
        yield cancelled.is_set
    finally:
        finished.set()
        thread.join()
