"""A team's usage."""

from typing import Annotated

from fastapi import Query

from trainwright.contracts.api.usage import DailyMemberUsage, DailyRunUsage, Usage
from trainwright_backend.api.dependencies import ReadSession
from trainwright_backend.auth.policies import Viewer
from trainwright_backend.checkpoints import usage
from trainwright_backend.core.policy import GuardedRoute
from trainwright_backend.core.resource_router import ResourceRouter
from trainwright_backend.teams.usage import first_day, list_daily_member_usage

router = ResourceRouter(prefix="/teams/{team}/usage", tags=["usage"], route_class=GuardedRoute)


Days = Annotated[int, Query(ge=1, le=366)]


@router.get("")
def show_usage(access: Viewer, session: ReadSession, days: Days = 30) -> Usage:
    """Quota, storage, bytes of checkpoints, and slot-hours by day, by person and by run, for the last `days` days (UTC).
    The time of running attempts is up to half a minute old."""
    return usage.show_usage(session, access.team_id, days)


@router.get("/members")
def list_member_usage(access: Viewer, session: ReadSession, days: Days = 30) -> list[DailyMemberUsage]:
    """Slot-hours by day and by the person who submitted the runs, for the last `days` days (UTC). Days without usage are left
    out."""
    return list_daily_member_usage(session, access.team_id, first_day(days))


@router.get("/runs")
def list_run_usage(access: Viewer, session: ReadSession, days: Days = 30) -> list[DailyRunUsage]:
    """Slot-hours by day, run, person and device, for the last `days` days (UTC): the rows that the other figures add up. Deleted
    runs have no name."""
    return usage.list_run_usage(session, access.team_id, days)
