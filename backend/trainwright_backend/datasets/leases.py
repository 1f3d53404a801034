"""Leases: the expiring right of one worker to make one step.

A step runs without a transaction, so its outcome is written guarded by its lease: a worker that was thought dead and
is not changes nothing. While a step runs, a thread renews the lease, and tells the step when nobody wants it any more.
A step that has been told keeps its lease until it has left, or a second worker would do the same beside it.
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
from trainwright_backend.datasets.tables import DatasetVersion, Preparation, PreparationSlice, Reading

LEASE = timedelta(seconds=60)
RENEWAL_SECONDS = 15.0
POLL_SECONDS = 2.0
"""A step learns within this time that it was cancelled."""

MOST_LOST_LEASES = 3
"""A step whose workers died so often would kill the next one too."""

MOST_FAILURES = 3
"""Errors, such as a full disk, before something is given up."""

Leased = Reading | DatasetVersion | Preparation | PreparationSlice


@dataclass(frozen=True)
class Lease:
    """Who holds what: the lease in a row of one of four tables."""

    table: type[Leased]
    owner_id: UUID
    """Of the row; of a slice, its preparation's."""

    token: UUID
    number: int | None = None
    """Of a slice."""

    def conditions(self) -> tuple[ColumnElement[bool], ...]:
        """That the row still carries this lease."""
        if self.table is PreparationSlice:
            return (
                PreparationSlice.preparation_id == self.owner_id,
                PreparationSlice.number == self.number,
                PreparationSlice.lease == self.token,
            )
        table: Any = self.table
        return (table.id == self.owner_id, table.lease == self.token)


def is_free(row: Leased) -> bool:
    """Whether nobody holds ``row``, which is locked, or its holder has fallen silent."""
    return row.lease is None or row.leased_until is None or row.leased_until < now()


def take(row: Reading | DatasetVersion | Preparation) -> Lease:
    """Give out the lease of ``row``, which is locked and free."""
    row.lease, row.leased_until, row.touched = uuid4(), now() + LEASE, now()
    return Lease(type(row), row.id, row.lease)


def take_slice(row: PreparationSlice) -> Lease:
    """As `take`."""
    row.lease, row.leased_until = uuid4(), now() + LEASE
    return Lease(PreparationSlice, row.preparation_id, row.lease, row.number)


def release(session: Write, lease: Lease) -> bool:
    """Give ``lease`` back; False when it was lost before."""
    given = update(lease.table).where(*lease.conditions()).values(lease=None, leased_until=None)
    return session.change(given) == 1


def renew(session: Write, lease: Lease) -> bool:
    """Keep ``lease`` for longer; False when it was lost."""
    owner: Any = Preparation if lease.table is PreparationSlice else lease.table
    # A preparation before its slice, as all who take both do.
    session.execute(select(owner.id).where(owner.id == lease.owner_id).with_for_update())
    if not session.change(update(lease.table).where(*lease.conditions()).values(leased_until=now() + LEASE)):
        return False
    session.change(update(owner).where(owner.id == lease.owner_id).values(touched=now()))
    return True


def is_wanted(session: Read, lease: Lease) -> bool:
    """Whether the lease still stands and its preparation was neither cancelled nor given up."""
    if session.scalar(select(lease.table.lease).where(*lease.conditions())) is None:
        return False
    if lease.table not in (Preparation, PreparationSlice):
        return True
    state = session.scalar(select(Preparation.state).where(Preparation.id == lease.owner_id))
    return state in (PreparationState.WAITING, PreparationState.WORKING)


@contextmanager
def kept(database: Database, lease: Lease) -> Iterator[Callable[[], bool]]:
    """Keep ``lease`` while the block runs; yields the question whether nobody wants the step any more."""
    over, unwanted = threading.Event(), threading.Event()

    def look() -> None:
        renewed = monotonic()
        while not over.wait(min(POLL_SECONDS, RENEWAL_SECONDS)):
            with suppress(Busy):
                if monotonic() - renewed >= RENEWAL_SECONDS:
                    with database.write() as session:
                        held = renew(session, lease)
                    renewed = monotonic()
                    if not held:
                        unwanted.set()
                        return
                with database.read() as session:
                    wanted = is_wanted(session, lease)
                if not wanted:
                    unwanted.set()

    thread = threading.Thread(target=look, name="lease", daemon=True)
    thread.start()
    try:
        yield unwanted.is_set
    finally:
        over.set()
        thread.join()
