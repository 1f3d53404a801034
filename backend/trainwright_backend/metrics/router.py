"""HTTP of metrics for people: curves, and live points."""

from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from pydantic import StringConstraints

from trainwright.contracts.api import Metrics
from trainwright_backend.auth.policies import Viewer, still_in_team
from trainwright_backend.core.db import ReadSession
from trainwright_backend.core.ids import LARGEST_NUMBER
from trainwright_backend.core.stream import EventStream, ServerEvent, follow
from trainwright_backend.metrics.follow import Follower
from trainwright_backend.metrics.names import Selection
from trainwright_backend.metrics.points import LONGEST_NAME
from trainwright_backend.metrics.service import read_metrics, read_names
from trainwright_backend.runs.service import get_run
from trainwright_backend.runs.wake import run_topic

router = APIRouter(prefix="/teams/{team}/runs/{run}/metrics", tags=["metrics"])

_NAMES = "Which series; `*` stands for any text. When left out, all but those of single tensors."
Names = Annotated[
    list[Annotated[str, StringConstraints(max_length=LONGEST_NAME)]] | None,
    Query(max_length=100, description=_NAMES),
]


@router.get("")
def show_metrics(
    access: Viewer,
    session: ReadSession,
    run: str,
    names: Names = None,
    after_step: Annotated[int, Query(ge=-1, le=LARGEST_NUMBER)] = -1,
    points: Annotated[int | None, Query(ge=2, le=100_000)] = None,
) -> Metrics:
    """The run's curves. `points` thins each out to the extremes of equal stretches, so that every spike stays."""
    selection = Selection(names or [])
    return read_metrics(session, get_run(session, access.team_id, run), selection, after_step, points)


@router.get("/names")
def show_names(access: Viewer, session: ReadSession, run: str, names: Names = None) -> list[str]:
    """Names of the run's series that have points."""
    return read_names(session, get_run(session, access.team_id, run), Selection(names or []))


@router.get("/stream", response_class=EventStream)
def stream_metrics(
    access: Viewer,
    request: Request,
    run: str,
    names: Names = None,
    last_event_id: Annotated[str | None, Header()] = None,
) -> EventStream:
    """The run's points as they come, from the beginning or from Last-Event-ID; ends with the run."""
    database = request.app.state.database
    with database.read() as session:
        follower = Follower(database, get_run(session, access.team_id, run).id, Selection(names or []))
    first = follower.begin(last_event_id)

    def read() -> tuple[list[ServerEvent], bool]:
        nonlocal first
        events, ended = follower.read()
        events, first = [*first, *events], []
        return events, ended

    permitted = still_in_team(request, access)
    return follow(request.app.state.topics, run_topic(follower.run_id), read, permitted)
