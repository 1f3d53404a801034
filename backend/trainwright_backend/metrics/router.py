"""HTTP of metrics for people: curves, and live points."""

from typing import Annotated

from fastapi import APIRouter, Header, Query, Request

from trainwright.contracts.api import Metrics
from trainwright_backend.auth.policies import Viewer, still_in_team
from trainwright_backend.core.db import ReadSession
from trainwright_backend.core.ids import LARGEST_NUMBER
from trainwright_backend.core.stream import EventStream, ServerEvent, follow
from trainwright_backend.metrics.follow import Follower
from trainwright_backend.metrics.service import read_metrics
from trainwright_backend.runs.service import get_run
from trainwright_backend.runs.wake import run_topic

router = APIRouter(prefix="/teams/{team}/runs/{run}/metrics", tags=["metrics"])


@router.get("")
def show_metrics(
    access: Viewer,
    session: ReadSession,
    run: str,
    names: Annotated[list[str] | None, Query()] = None,
    after_step: Annotated[int, Query(ge=-1, le=LARGEST_NUMBER)] = -1,
    points: Annotated[int | None, Query(ge=2, le=100_000)] = None,
) -> Metrics:
    """The run's curves. `points` thins each out to the extremes of equal stretches, so that every spike stays."""
    return read_metrics(session, get_run(session, access.team_id, run), names or [], after_step, points)


@router.get("/stream", response_class=EventStream)
def stream_metrics(
    access: Viewer, request: Request, run: str, last_event_id: Annotated[str | None, Header()] = None
) -> EventStream:
    """The run's points as they come, from the beginning or from Last-Event-ID; ends with the run."""
    database = request.app.state.database
    with database.read() as session:
        follower = Follower(database, get_run(session, access.team_id, run).id)
    first = follower.begin(last_event_id)

    def read() -> tuple[list[ServerEvent], bool]:
        nonlocal first
        events, ended = follower.read()
        events, first = [*first, *events], []
        return events, ended

    permitted = still_in_team(request, access)
    return follow(request.app.state.topics, run_topic(follower.run_id), read, permitted)
