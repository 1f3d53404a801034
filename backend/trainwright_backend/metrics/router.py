"""HTTP of metrics for people: curves, and live points."""

from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import StringConstraints

from trainwright.contracts.api.metrics import Metrics
from trainwright_backend.auth.policies import Viewer, still_in_team
from trainwright_backend.core.db import ReadSession
from trainwright_backend.core.ids import LARGEST_NUMBER
from trainwright_backend.core.stream import EventStream, follow
from trainwright_backend.metrics.charts import MOST_POINTS, Window, read_metrics, read_names
from trainwright_backend.metrics.follow import Follower
from trainwright_backend.metrics.names import Selection
from trainwright_backend.metrics.points import LONGEST_NAME
from trainwright_backend.runs.service import get_run
from trainwright_backend.runs.wake import run_topic

router = APIRouter(prefix="/teams/{team}/runs/{run}/metrics", tags=["metrics"])

_NAMES = "Which series; `*` stands for any text. When left out, all but those of single tensors."
Names = Annotated[
    list[Annotated[str, StringConstraints(max_length=LONGEST_NAME)]] | None,
    Query(max_length=100, description=_NAMES),
]


@router.get("", response_model=Metrics)
def show_metrics(
    access: Viewer,
    session: ReadSession,
    run: str,
    names: Names = None,
    after_step: Annotated[int, Query(ge=-1, le=LARGEST_NUMBER)] = -1,
    to_step: Annotated[int, Query(ge=0, le=LARGEST_NUMBER)] = LARGEST_NUMBER,
    points: Annotated[int, Query(ge=2, le=100_000)] = MOST_POINTS,
) -> Response:
    """The run's curves within after_step < step ≤ to_step. `points` thins each out to the extremes of equal
    stretches, so that every spike stays."""
    window = Window(after_step, to_step, points)
    found = read_metrics(session, get_run(session, access.team_id, run), Selection(names or []), window)
    # The framework would check and copy every number once more, which takes longer than reading them.
    return Response(found.model_dump_json(), media_type="application/json")


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
    follower.begin(last_event_id)
    permitted = still_in_team(request, access)
    return follow(request.app.state.topics, run_topic(follower.run_id), follower.read, permitted)
