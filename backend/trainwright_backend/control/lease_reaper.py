"""Closing placements whose lease expired.

The reaper uses this process's own monotonic clock: a lease has expired when the placement's renewal *number* has not
changed for the length of the lease while the reaper was watching. After a start, or after a late sweep, it was not
watching, so it discards earlier observations. It does not use wall clocks.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from uuid import UUID

import structlog
from sqlalchemy import select

from trainwright.contracts.agent_protocol import Timers
from trainwright_backend.attempts.attempt_end import expire_lease
from trainwright_backend.control.run_step import run_step
from trainwright_backend.core.counters import LEASES_EXPIRED
from trainwright_backend.core.db import Database
from trainwright_backend.runs.tables import Placement

log = structlog.get_logger()


@dataclass(frozen=True)
class Sighting:
    """When a placement was first seen with its current renewal number."""

    renewal: int
    since: float


class LeaseReaper:
    """Closes placements whose lease expired."""

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
        if late:
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
                run_step(partial(self._reap, placement_id, renewal), placement=str(placement_id))

    def _sighting(self, placement_id: UUID, renewal: int, at: float) -> Sighting:
        earlier = self._seen.get(placement_id)
        return earlier if earlier is not None and earlier.renewal == renewal else Sighting(renewal, at)

    def _reap(self, placement_id: UUID, renewal: int) -> None:
        with self._database.write() as session:
            if expire_lease(session, placement_id, renewal, self._timers):
                session.after_commit(LEASES_EXPIRED.inc)
                log.warning("a lease expired", placement=str(placement_id), renewal=renewal)
