"""How long a run occupies its slots: from `leased` to the end of the attempt, on the wall clock.

``run.charged_until`` says up to when that is counted. It is set by the move to `leased`; the control loop's sweep counts
the time since then and sets it anew, under the run's lock; the move that frees the slots counts the rest and empties it,
in its own transaction. So a stretch of time is counted once, whoever comes first, and a crash between two sweeps loses
none. A clock that is set back counts nothing twice: the mark never goes back.
"""

from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import Select, or_, select

from trainwright.contracts.run_state import WITHOUT_TRAINER, RunState
from trainwright_backend.core.db import Write, now
from trainwright_backend.runs.tables import Run
from trainwright_backend.teams.usage import add_slot_time

COUNTED_EVERY_SECONDS = 30.0
"""A sweep leaves alone what was counted so lately: each count is a transaction of its own."""

OCCUPIED = tuple(state for state in RunState if state not in WITHOUT_TRAINER)


def mark_after(state: RunState, mark: datetime | None) -> datetime | None:
    """What ``run.charged_until`` becomes by a move to ``state``."""
    if state in WITHOUT_TRAINER:
        return None
    return now() if state is RunState.LEASED else mark


def charge(session: Write, run: Run, mark: datetime | None, until: datetime) -> None:
    """Count the time that the run occupied its slots since ``mark``."""
    if mark is not None and until > mark:
        add_slot_time(session, run.team_id, run.id, run.device, run.slots, mark, until)


def due_for_counting() -> Select[UUID]:
    """The runs that occupy slots and were not counted lately; one that was live in an older version has no mark."""
    before = now() - timedelta(seconds=COUNTED_EVERY_SECONDS)
    return select(Run.id).where(
        Run.state.in_(OCCUPIED), or_(Run.charged_until <= before, Run.charged_until.is_(None))
    )


def count_time(session: Write, run_id: UUID) -> None:
    """Count what a run has occupied up to now, if it still does."""
    run = session.get(Run, run_id, with_for_update=True, populate_existing=True)
    if run is None or run.state not in OCCUPIED:
        return
    at = now()
    charge(session, run, run.charged_until, at)
    run.charged_until = max(run.charged_until or at, at)
