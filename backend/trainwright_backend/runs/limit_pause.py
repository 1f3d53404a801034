"""Pausing a run because a limit of its team or submitter is reached. It saves first and is never ended.

It waits until a person resumes it: `resume_run` refuses that as long as the limit is reached.
"""

from uuid import UUID

from sqlalchemy import Select, select

from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.run_state import RunState, Verdict
from trainwright_backend.core.db import Write
from trainwright_backend.runs.limit_use import why_out_of_hours
from trainwright_backend.runs.metering import OCCUPIED
from trainwright_backend.runs.state_text import end_text
from trainwright_backend.runs.tables import Run
from trainwright_backend.runs.transitions import lock_run, stop


def runs_of_teams_on_nodes(team_ids: set[UUID]) -> Select[UUID]:
    """The runs of some teams that occupy nodes and are not stopping yet."""
    states = [state for state in OCCUPIED if state is not RunState.STOPPING]
    return select(Run.id).where(Run.team_id.in_(team_ids), Run.state.in_(states)).order_by(Run.id)


def pause_out_of_hours(session: Write, run_id: UUID) -> None:
    """Pause a run if its team, or its submitter, has used up the hours of the month."""
    run = lock_run(session, run_id)
    if run is not None and (why := why_out_of_hours(session, run)):
        pause_for(session, run, EndCode.QUOTA_HOURS, why)


def pause_for(session: Write, run: Run, code: EndCode, why: str) -> None:
    """Let a run on nodes save and leave them, unless it is stopping."""
    if run.state in OCCUPIED and run.state is not RunState.STOPPING:
        stop(session, run, Verdict.PAUSE, code, end_text(code, f"Paused: {why}"))
