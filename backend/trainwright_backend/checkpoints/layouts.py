"""Another layout for a run, where one can have effect: what a run has left to do is told by its newest checkpoint.

Whose newest state is that of the last step is only exported from then on, whatever it waits for now. What a layout may be
is for `runs.layout`.
"""

from uuid import UUID

from trainwright.contracts.api.verbs import RunLayout
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.run_state import FINAL, RunState
from trainwright_backend.checkpoints.service import newest_state
from trainwright_backend.core.db import Read, Write
from trainwright_backend.core.errors import Conflict
from trainwright_backend.runs.layout import change_layout
from trainwright_backend.runs.service import locked_run
from trainwright_backend.runs.tables import Run


def change_layout_of_what_is_left(
    session: Write, team_id: UUID, run_id: str, layout: RunLayout, by: str
) -> Run:
    """As `change_layout`.

    Raises:
        Conflict: as there; or ``run_is_trained``: only the export is left.
        Invalid: as there.
    """
    run = locked_run(session, team_id, run_id)
    if run.state not in FINAL | {RunState.COMPLETING} and _is_trained(session, run):
        detail = (
            "This run has trained all its steps: only its export is left, which no layout changes. To train it anew in "
            "another layout, clone it."
        )
        raise Conflict("run_is_trained", detail)
    return change_layout(session, team_id, run_id, layout, by)


def _is_trained(session: Read, run: Run) -> bool:
    newest = newest_state(session, run.id)
    return newest is not None and newest.step >= RunSpec.model_validate(run.spec).schedule.steps
