"""Changing the layout of a run that still has steps to train, according to its newest checkpoint.

If the newest state is of the last step, the run is only exported from then on, in every state of the run. `runs.layout`
decides which layouts are valid.
"""

from uuid import UUID

from trainwright.contracts.api.actions import RunLayout
from trainwright.contracts.run_state import FINAL, RunState
from trainwright_backend.checkpoints.service import newest_state
from trainwright_backend.core.db import Read, Write
from trainwright_backend.core.errors import Conflict
from trainwright_backend.runs.layout import change_layout
from trainwright_backend.runs.service import locked_run
from trainwright_backend.runs.stored_spec import stored_spec
from trainwright_backend.runs.tables import Run


def change_remaining_layout(session: Write, team_id: UUID, run_id: str, layout: RunLayout, by: str) -> Run:
    """As `change_layout`.

    Raises:
        Conflict: see there; or ``run_is_trained``: only the export is left.
        Invalid: see there.
    """
    run = locked_run(session, team_id, run_id)
    if run.state not in FINAL | {RunState.COMPLETING} and _is_trained(session, run):
        detail = (
            "This run has trained all its steps: only its export is left, which does not depend on the layout. To train it "
            "again in another layout, clone it."
        )
        raise Conflict("run_is_trained", detail)
    return change_layout(session, team_id, run_id, layout, by)


def _is_trained(session: Read, run: Run) -> bool:
    newest = newest_state(session, run.id)
    return newest is not None and newest.step >= stored_spec(run).schedule.steps
