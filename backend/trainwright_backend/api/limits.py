"""Limits of a team and of its members, besides the team's slots."""

from trainwright.contracts.api.limits import LimitUse, MemberLimits, MemberLimitUse, TeamLimits
from trainwright_backend.api.dependencies import ReadSession, WriteSession
from trainwright_backend.auth.policies import Owner, SiteAdmin, Viewer
from trainwright_backend.checkpoints import limit_report
from trainwright_backend.core.policy import GuardedRoute
from trainwright_backend.core.resource_router import ResourceRouter
from trainwright_backend.teams import limits, service

router = ResourceRouter(prefix="/teams/{team}/limits", tags=["teams"], route_class=GuardedRoute)


@router.get("")
def show_limits(access: Viewer, session: ReadSession) -> LimitUse:
    """The team's limits of monthly hours, storage, runs and priorities, how much of them is used, and this month's notices."""
    return limit_report.show_limits(session, access.team_id)


@router.put("")
def set_limits(team: str, new: TeamLimits, admin: SiteAdmin, session: WriteSession) -> TeamLimits:
    """Replace the team's limits; an omitted field means no limit. For site admins. Runs that reach a limit of hours or storage
    are paused. Once the limit has been raised, they can be resumed."""
    limits.set_team_limits(session, service.team_id_of(session, team), new)
    return new


@router.get("/members")
def list_member_limits(access: Viewer, session: ReadSession) -> list[MemberLimitUse]:
    """The limits of each member, by name, and how much of them their runs use."""
    return limit_report.list_member_limits(session, access.team_id)


@router.put("/members/{member}")
def set_member_limits(member: str, new: MemberLimits, access: Owner, session: WriteSession) -> MemberLimits:
    """Replace the limits of a member within those of the team; an omitted field means no limit. For owners."""
    limits.set_member_limits(session, access.team_id, member, new)
    return new
