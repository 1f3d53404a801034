"""A team's usage."""

from typing import Annotated

from fastapi import APIRouter, Query

from trainwright.contracts.api.usage import Usage
from trainwright_backend.api.dependencies import ReadSession
from trainwright_backend.auth.policies import Viewer
from trainwright_backend.checkpoints import usage
from trainwright_backend.core.policy import GuardedRoute

router = APIRouter(prefix="/teams/{team}/usage", tags=["usage"], route_class=GuardedRoute)


@router.get("")
def show_usage(access: Viewer, session: ReadSession, days: Annotated[int, Query(ge=1, le=366)] = 30) -> Usage:
    """Quota, storage, bytes of checkpoints, and slot-hours by day and by run, for the last `days` days (UTC).
    The time of running attempts is up to half a minute old."""
    return usage.show_usage(session, access.team_id, days)
