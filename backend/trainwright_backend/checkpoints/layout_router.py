"""HTTP of a run's layout, which it can change while it has steps to train."""

from fastapi import APIRouter, Request

from trainwright.contracts.api.runs import Run as ShownRun
from trainwright.contracts.api.verbs import RunLayout
from trainwright_backend.auth.policies import Editor
from trainwright_backend.checkpoints.layouts import change_layout_of_what_is_left
from trainwright_backend.core.db import WriteSession
from trainwright_backend.core.policy import GuardedRoute
from trainwright_backend.runs import service

router = APIRouter(prefix="/teams/{team}/runs/{run}/layout", tags=["runs"], route_class=GuardedRoute)


@router.put("")
def change_layout(
    access: Editor, session: WriteSession, request: Request, run: str, new: RunLayout
) -> ShownRun:
    """Cut the run's next attempt over its ranks in another way. An attempt that lives goes on as it began."""
    changed = change_layout_of_what_is_left(session, access.team_id, run, new, access.user_name)
    return service.show_run(session, changed, request.app.state.settings.timers.scale)
