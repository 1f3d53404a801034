"""HTTP of a team's usage."""

from typing import Annotated

from fastapi import APIRouter, Query

from trainwright.contracts.api.usage import Usage
from trainwright_backend.auth.policies import Viewer
from trainwright_backend.checkpoints import usage
from trainwright_backend.core.db import ReadSession

router = APIRouter(prefix="/teams/{team}/usage", tags=["usage"])


@router.get("")
def show_usage(access: Viewer, session: ReadSession, days: Annotated[int, Query(ge=1, le=366)] = 30) -> Usage:
    """Quota, storage with the checkpoints beside it, and slot-hours by day and by run, of the last `days` days (UTC).
    Time of running attempts is counted up to half a minute ago."""
    return usage.show_usage(session, access.team_id, days)
