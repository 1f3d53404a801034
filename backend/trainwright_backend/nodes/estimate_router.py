"""HTTP of estimates. It lies with nodes, since time is known from what was measured on one."""

from typing import Annotated

from fastapi import APIRouter, Query

from trainwright.contracts.api.usage import RunEstimate
from trainwright.contracts.run_spec import RunSpec
from trainwright_backend.auth.policies import Viewer
from trainwright_backend.core.db import ReadSession
from trainwright_backend.core.ids import LARGEST_INTEGER
from trainwright_backend.core.policy import GuardedRoute
from trainwright_backend.nodes import estimate

router = APIRouter(prefix="/teams/{team}/runs/estimate", tags=["runs"], route_class=GuardedRoute)


BeginStep = Annotated[
    int,
    Query(
        ge=0,
        le=LARGEST_INTEGER,
        description="Step of the checkpoint that a fork goes on from; 0 for a new run.",
    ),
]


@router.post("")
def estimate_run(
    access: Viewer, session: ReadSession, spec: RunSpec, begin_step: BeginStep = 0
) -> RunEstimate:
    """What a run for a spec would come to: arithmetic, memory, bytes, and time where the same was measured before."""
    return estimate.estimate(session, access.team_id, spec, begin_step)
