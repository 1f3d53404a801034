"""HTTP of pausing and resuming; the addresses begin as those of `runs.router`, which includes this."""

from fastapi import APIRouter, Request

from trainwright.contracts.api.runs import Run as ShownRun
from trainwright_backend.auth.policies import Editor
from trainwright_backend.core.db import WriteSession
from trainwright_backend.core.policy import GuardedRoute
from trainwright_backend.runs import pause, service

router = APIRouter(route_class=GuardedRoute)


@router.post("/{run}/pause", status_code=202)
def pause_run(access: Editor, session: WriteSession, request: Request, run: str) -> ShownRun:
    """Save a run's state and free its slots. It is `stopping` until its node has let go of it."""
    paused = pause.pause_run(session, access.team_id, run, access.user_name)
    return service.show_run(session, paused, request.app.state.settings.timers.scale)


@router.post("/{run}/resume", status_code=202)
def resume_run(access: Editor, session: WriteSession, request: Request, run: str) -> ShownRun:
    """Queue a paused run again. Over the team's quota it is refused and stays paused."""
    resumed = pause.resume_run(session, access.team_id, run, access.user_name)
    return service.show_run(session, resumed, request.app.state.settings.timers.scale)
