"""Metering how long a run occupies its slots: from `leased` to the end of the attempt, by the wall clock.

``run.metered_until`` is the time up to which usage is recorded. The transition to `leased` sets it. The control loop's
sweep records the time since then and advances it, under the run's lock. The transition that frees the slots records the
rest and clears it, in its own transaction. So each interval is counted once, in any order of these steps, and a crash
between two sweeps loses nothing. If the clock is set back, nothing is counted twice, because the value never decreases.
"""

from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import Select, or_, select, update

from trainwright.contracts.run_state import WITHOUT_TRAINER, RunState
from trainwright_backend.core.db import Write, now
from trainwright_backend.runs.tables import Run
from trainwright_backend.teams.usage import add_slot_time

METERING_SECONDS = 30.0
"""A sweep skips runs that were metered more recently: each one takes a transaction."""

OCCUPIED = tuple(state for state in RunState if state not in WITHOUT_TRAINER)


def metered_until_after(state: RunState, mark: datetime | None) -> datetime | None:
    """The value of ``run.metered_until`` after a transition to ``state``."""
    if state in WITHOUT_TRAINER:
        return None
    return now() if state is RunState.LEASED else mark


def add_metered_time(session: Write, run: Run, mark: datetime | None, until: datetime) -> None:
    """Record the time that the run has occupied its slots since ``mark``."""
    if mark is not None and until > mark:
        more = Run.occupied_seconds + (until - mark).total_seconds()
        session.execute(update(Run).where(Run.id == run.id).values(occupied_seconds=more))
        add_slot_time(session, run.team_id, run.id, run.created_by, run.device, run.slots, mark, until)


def due_for_metering() -> Select[UUID]:
    """The runs that occupy slots and were not metered recently, or never, as those started by an older version."""
    before = now() - timedelta(seconds=METERING_SECONDS)
    return select(Run.id).where(
        Run.state.in_(OCCUPIED), or_(Run.metered_until <= before, Run.metered_until.is_(None))
    )


def meter_run(session: Write, run_id: UUID) -> None:
    """Record a run's usage up to now, if it still occupies slots."""
    run = session.get(Run, run_id, with_for_update=True, populate_existing=True)
    if run is None or run.state not in OCCUPIED:
        return
    at = now()
    add_metered_time(session, run, run.metered_until, at)
    run.metered_until = max(run.metered_until or at, at)
