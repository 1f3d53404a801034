"""HTTP of metrics of several runs at once, for comparisons."""

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import TypeAdapter

from trainwright.contracts.api.metrics import RunSeries
from trainwright_backend.auth.policies import Viewer
from trainwright_backend.core.db import ReadSession
from trainwright_backend.core.ids import LARGEST_NUMBER
from trainwright_backend.metrics.charts import Window, compare_metrics
from trainwright_backend.metrics.names import Selection
from trainwright_backend.metrics.router import Names
from trainwright_backend.runs.lists import find_runs

router = APIRouter(prefix="/teams/{team}/metrics", tags=["metrics"])

MOST_RUNS = 100
STANDARD_POINTS = 1_000

_RUNS = "Ids of runs. One that the team does not have is left out of the answer."
_ANSWER = TypeAdapter(list[RunSeries])


@router.get("", response_model=list[RunSeries])
def show_metrics_of_runs(
    access: Viewer,
    session: ReadSession,
    runs: Annotated[list[str], Query(min_length=1, max_length=MOST_RUNS, description=_RUNS)],
    names: Names = None,
    after_step: Annotated[int, Query(ge=-1, le=LARGEST_NUMBER)] = -1,
    to_step: Annotated[int, Query(ge=0, le=LARGEST_NUMBER)] = LARGEST_NUMBER,
    points: Annotated[int, Query(ge=2, le=10_000)] = STANDARD_POINTS,
) -> Response:
    """Curves of several runs within after_step < step ≤ to_step, each thinned out as those of one run are."""
    found = find_runs(session, access.team_id, runs)
    compared = compare_metrics(session, found, Selection(names or []), Window(after_step, to_step, points))
    # The framework would check and copy every number once more, which takes longer than reading them.
    return Response(_ANSWER.dump_json(compared), media_type="application/json")
