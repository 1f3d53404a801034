"""Moving a run forward to what its nodes report."""

from sqlalchemy import select

from trainwright.contracts.job_spec import JobKind
from trainwright.contracts.run_state import ADVANCING, RunState
from trainwright_backend.core.db import Write
from trainwright_backend.runs.tables import Placement, Run
from trainwright_backend.runs.transitions import move

_MESSAGES = {RunState.RUNNING: "training", RunState.COMPLETING: "exporting the weights"}


def advance(session: Write, run: Run, target: RunState) -> None:
    """Move the run forward to ``target`` through the states between; an earlier target changes nothing."""
    if run.state is RunState.LEASED:  # other nodes have not claimed yet
        return
    for state in ADVANCING[ADVANCING.index(run.state) + 1 : ADVANCING.index(target) + 1]:
        if state is RunState.RUNNING and target is RunState.COMPLETING and _only_exports(session, run):
            continue
        move(session, run, state, _MESSAGES[state])


def _only_exports(session: Write, run: Run) -> bool:
    placements = select(Placement.job).where(Placement.run_id == run.id, Placement.fence == run.fence)
    job = session.scalars(placements.limit(1)).first()
    return job is not None and job["kind"] == JobKind.EXPORT
