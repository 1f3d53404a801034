"""The maximum run time of a run, `resources.max_hours`: its time on nodes since it was submitted or resumed by a person.

At its maximum it saves and is paused. An export is not interrupted, because it is short and the training is done.
"""

from datetime import datetime
from uuid import UUID

from sqlalchemy import Select, select

from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.run_state import RunState
from trainwright_backend.core.db import Write, now
from trainwright_backend.runs.limit_pause import pause_for
from trainwright_backend.runs.state_text import duration
from trainwright_backend.runs.tables import Run
from trainwright_backend.runs.transitions import lock_run

TRAINING = (RunState.LEASED, RunState.STARTING, RunState.RUNNING)


def remaining_seconds(run: Run) -> float | None:
    """How long the run may still be on nodes; None without a maximum."""
    return seconds_left(run.max_seconds, run.occupied_seconds, run.metered_until)


def seconds_left(
    max_seconds: float | None, occupied_seconds: float, metered_until: datetime | None
) -> float | None:
    """As `remaining_seconds`, from columns of the run."""
    if max_seconds is None:
        return None
    unmetered = 0.0 if metered_until is None else (now() - metered_until).total_seconds()
    return max(max_seconds - occupied_seconds - max(unmetered, 0.0), 0.0)


def limited_runs() -> Select[UUID]:
    """The runs on nodes that have a maximum."""
    return select(Run.id).where(Run.state.in_(TRAINING), Run.max_seconds.is_not(None))


def pause_at_max_time(session: Write, run_id: UUID) -> None:
    """Pause a run that trains and has reached its maximum."""
    run = lock_run(session, run_id)
    if run is None or run.state not in TRAINING or run.max_seconds is None or remaining_seconds(run):
        return
    pause_for(session, run, EndCode.MAX_HOURS, f"it was on nodes for {duration(run.max_seconds)}")
