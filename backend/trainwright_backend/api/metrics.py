"""Metrics of a run: curves and live points; curves of several runs for a comparison."""

from typing import Annotated

from fastapi import Query, Request, Response
from pydantic import StringConstraints, TypeAdapter

from trainwright.contracts.api.metrics import Metrics, RunSeries
from trainwright_backend.api.dependencies import CurrentDatabase, CurrentTopics, LastEventId, ReadSession
from trainwright_backend.auth.policies import Viewer, still_in_team
from trainwright_backend.core.ids import MAX_NUMBER
from trainwright_backend.core.policy import GuardedRoute
from trainwright_backend.core.resource_router import ResourceRouter
from trainwright_backend.core.sse import EventStream, stream_events
from trainwright_backend.metrics.metric_queries import (
    MAX_POINTS,
    Window,
    compare_metrics,
    read_metrics,
    read_names,
)
from trainwright_backend.metrics.metric_stream import MetricStreamReader
from trainwright_backend.metrics.selection import Selection
from trainwright_backend.metrics.writing import MAX_NAME_LENGTH
from trainwright_backend.runs.lists import find_runs
from trainwright_backend.runs.notify import run_topic
from trainwright_backend.runs.service import get_run

router = ResourceRouter(prefix="/teams/{team}", tags=["metrics"], route_class=GuardedRoute)

MAX_RUNS = 100
DEFAULT_POINTS = 1_000

_RUNS = "Ids of runs. Runs that the team does not have are left out of the response."
_NAMES = "Which series; `*` matches any text. By default all except those of single tensors."
Names = Annotated[
    list[Annotated[str, StringConstraints(max_length=MAX_NAME_LENGTH)]] | None,
    Query(max_length=100, description=_NAMES),
]
_RUN_SERIES = TypeAdapter(list[RunSeries])


@router.get("/runs/{run}/metrics", response_model=Metrics)
def show_metrics(
    access: Viewer,
    session: ReadSession,
    run: str,
    names: Names = None,
    after_step: Annotated[int, Query(ge=-1, le=MAX_NUMBER)] = -1,
    to_step: Annotated[int, Query(ge=0, le=MAX_NUMBER)] = MAX_NUMBER,
    points: Annotated[int, Query(ge=2, le=100_000)] = MAX_POINTS,
) -> Response:
    """The run's curves within after_step < step ≤ to_step. `points` limits each one: it is down-sampled to minimum
    and maximum of equal segments, so that every spike stays."""
    window = Window(after_step, to_step, points)
    found = read_metrics(session, get_run(session, access.team_id, run), Selection(names or []), window)
    # FastAPI would validate and copy every number again, which takes longer than reading them.
    return Response(found.model_dump_json(), media_type="application/json")


@router.get("/runs/{run}/metrics/names")
def show_names(access: Viewer, session: ReadSession, run: str, names: Names = None) -> list[str]:
    """Names of the run's series that have points."""
    return read_names(session, get_run(session, access.team_id, run), Selection(names or []))


@router.get("/runs/{run}/metrics/stream", response_class=EventStream)
def stream_metrics(
    access: Viewer,
    request: Request,
    database: CurrentDatabase,
    topics: CurrentTopics,
    run: str,
    names: Names = None,
    last_event_id: LastEventId = None,
) -> EventStream:
    """The run's points as they arrive, from the start or from Last-Event-ID; the stream ends with the run."""
    with database.read() as session:
        reader = MetricStreamReader(
            database, get_run(session, access.team_id, run).id, Selection(names or [])
        )
    reader.seek(last_event_id)
    permitted = still_in_team(request, access)
    return stream_events(topics, run_topic(reader.run_id), reader.read, permitted, access.user_id)


@router.get("/metrics", response_model=list[RunSeries])
def show_metrics_of_runs(
    access: Viewer,
    session: ReadSession,
    runs: Annotated[list[str], Query(min_length=1, max_length=MAX_RUNS, description=_RUNS)],
    names: Names = None,
    after_step: Annotated[int, Query(ge=-1, le=MAX_NUMBER)] = -1,
    to_step: Annotated[int, Query(ge=0, le=MAX_NUMBER)] = MAX_NUMBER,
    points: Annotated[int, Query(ge=2, le=10_000)] = DEFAULT_POINTS,
) -> Response:
    """Curves of several runs within after_step < step ≤ to_step, down-sampled like those of one run."""
    found = find_runs(session, access.team_id, runs)
    compared = compare_metrics(session, found, Selection(names or []), Window(after_step, to_step, points))
    # FastAPI would validate and copy every number again, which takes longer than reading them.
    return Response(_RUN_SERIES.dump_json(compared), media_type="application/json")
