"""Asking a run to leave its nodes for another one: it saves, as for a pause, leaves, and is queued again at its earlier place.

`departures` chooses the runs. Here each is asked in its own transaction, which checks again. What the run learns does not
change: it resumes from the step at which it left.
"""

from uuid import UUID

from sqlalchemy import func, select

from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.run_state import RunState, Verdict
from trainwright_backend.core.db import Read, Write, now
from trainwright_backend.runs.tables import Run
from trainwright_backend.runs.transitions import lock_run, stop
from trainwright_backend.scheduling.occupants import PREEMPTIBLE
from trainwright_backend.teams.slot_quota import slot_budget
from trainwright_backend.teams.team_locks import lock_team

BORROWED = "Pre-empted: it borrowed slots beyond its team's guaranteed share, and the share of another team covers a waiting run"
LATE = "Pre-empted: it was placed ahead of its turn, took longer than expected, and an earlier run waits for its slots"


def preempt(session: Write, run_id: UUID, waiting_id: UUID) -> None:
    """Ask a run to leave its nodes, if it is still at work and the other one still waits."""
    run, waiting = lock_run(session, run_id), session.get(Run, waiting_id)
    if run is None or run.state not in PREEMPTIBLE:
        return
    if waiting is None or waiting.state is not RunState.QUEUED:
        return
    lock_team(session, run.team_id)  # nobody else counts its runs now
    if run.backfill_for == waiting_id and run.backfill_until is not None and run.backfill_until <= now():
        stop(session, run, Verdict.MOVE, EndCode.PREEMPTED, LATE)
    elif _borrows(session, run):
        stop(session, run, Verdict.MOVE, EndCode.PREEMPTED, BORROWED)


def was_preempted(run: Run) -> str:
    """The end of a waiting run's sentence if it left its nodes for another run."""
    return "; it was pre-empted and keeps its place" if run.reason is EndCode.PREEMPTED else ""


def _borrows(session: Read, run: Run) -> bool:
    """Whether the run's team keeps its share without this run and without those that are leaving."""
    same = (Run.team_id == run.team_id, Run.device == run.device, Run.state == RunState.STOPPING)
    leaving = session.scalar(select(func.sum(Run.slots)).where(*same)) or 0
    budget = slot_budget(session, run.team_id, run.device)
    return budget.used - leaving - run.slots >= budget.guaranteed
