"""Pausing a run because a limit of its team or submitter is reached. It saves first and is never ended.

It waits until a person resumes it: `resume_run` refuses that as long as the limit is reached.
"""

from uuid import UUID

from sqlalchemy import select
from sqlalchemy.orm import load_only

from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.run_state import RunState, Verdict
from trainwright_backend.core.db import Read, Write
from trainwright_backend.runs.limit_usage import MeasuredLimits
from trainwright_backend.runs.metering import OCCUPIED
from trainwright_backend.runs.state_text import end_text
from trainwright_backend.runs.tables import Run
from trainwright_backend.runs.transitions import lock_run, stop

PAUSABLE = tuple(state for state in OCCUPIED if state is not RunState.STOPPING)
"""The states of runs that occupy nodes and are not stopping yet."""


def runs_out_of_hours(session: Read, measured: MeasuredLimits) -> list[UUID]:
    """The runs to pause, oldest first: those whose team, or whose submitter, has used up the hours of the month."""
    read = load_only(Run.team_id, Run.created_by, Run.created_by_name, Run.device)
    on_nodes = select(Run).where(Run.team_id.in_(measured.team_ids), Run.state.in_(PAUSABLE)).order_by(Run.id)
    return [
        run.id
        for run in session.scalars(on_nodes.options(read))
        if measured.why_out_of_hours(run) is not None
    ]


def pause_out_of_hours(session: Write, run_id: UUID) -> None:
    """Pause a run if its team, or its submitter, has used up the hours of the month."""
    run = lock_run(session, run_id)
    if run is None:
        return
    why = MeasuredLimits.measure(session, {run.team_id}).why_out_of_hours(run)
    if why is not None:
        pause_for(session, run, EndCode.QUOTA_HOURS, why)


def pause_for(session: Write, run: Run, code: EndCode, why: str) -> None:
    """Let a run on nodes save and leave them, unless it is stopping."""
    if run.state in PAUSABLE:
        stop(session, run, Verdict.PAUSE, code, end_text(code, f"Paused: {why}"))
