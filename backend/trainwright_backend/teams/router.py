"""Teams, members, quota, and the one-time links by which people come in."""

from fastapi import APIRouter, Request, Response

from trainwright.contracts.api.people import (
    Invitation,
    LinkInfo,
    Me,
    Member,
    NewInvitation,
    NewTeam,
    OneTimeLink,
    OpenInvitation,
    Quota,
    QuotaLimit,
    StorageLimit,
    StorageUse,
    Team,
)
from trainwright_backend.auth.policies import (
    Owner,
    SignedIn,
    SiteAdmin,
    Viewer,
    person_or_nobody,
    set_session_cookie,
)
from trainwright_backend.core.db import ReadSession, WriteSession
from trainwright_backend.core.policy import GuardedRoute, public
from trainwright_backend.teams import links, service

router = APIRouter(tags=["teams"], route_class=GuardedRoute)

_THE_TOKEN = public("the token in the link is the right")


@router.get("/auth/link/{token}", dependencies=[_THE_TOKEN])
def get_link(token: str, request: Request, session: ReadSession) -> LinkInfo:
    """What a one-time link is for; looking does not use it up."""
    return links.link_info(session, request.app.state.settings, token)


@router.post("/auth/link", dependencies=[_THE_TOKEN])
def use_link(used: OneTimeLink, request: Request, response: Response) -> Me:
    """Use a one-time link; sets the session cookie."""
    settings = request.app.state.settings
    caller = person_or_nobody(request)
    caller_id = None if caller is None else caller.user_id
    signed_in = links.use_link(request.app.state.database, settings, used, caller_id)
    set_session_cookie(response, settings, signed_in.session_token)
    return signed_in.me


@router.get("/teams")
def list_teams(person: SignedIn, session: ReadSession) -> list[Team]:
    """The teams you are in."""
    return service.list_teams(session, person.user_id)


@router.post("/teams", status_code=201)
def create_team(new: NewTeam, admin: SiteAdmin, request: Request, session: WriteSession) -> Team:
    """Make a team; you become its owner. For site admins."""
    settings = request.app.state.settings
    return service.create_team(
        session, new, admin.user_id, settings.default_quota, settings.default_storage_gib
    )


@router.get("/teams/{team}")
def get_team(access: Viewer, session: ReadSession) -> Team:
    """A team with its quota and storage."""
    return service.show_team(session, access.team_id)


@router.get("/teams/{team}/members")
def list_members(access: Viewer, session: ReadSession) -> list[Member]:
    """The people of a team."""
    return service.list_members(session, access.team_id)


@router.post("/teams/{team}/invitations", status_code=201)
def create_invitation(
    new: NewInvitation, access: Owner, request: Request, session: WriteSession
) -> Invitation:
    """Invite somebody into the team. The answer has the link to send to them."""
    return links.invite(session, request.app.state.settings, access.team_id, new)


@router.get("/teams/{team}/invitations")
def list_invitations(access: Owner, session: ReadSession) -> list[OpenInvitation]:
    """Invitations whose links still work, the newest first. The links themselves are shown to nobody again."""
    return links.open_invitations(session, access.team_id)


@router.delete("/teams/{team}/invitations/{invitation}", status_code=204)
def revoke_invitation(access: Owner, session: WriteSession, invitation: str) -> None:
    """Let the link of an invitation work no more."""
    links.revoke_invitation(session, access.team_id, invitation)


@router.put("/teams/{team}/quota/{device}")
def set_quota(team: str, device: str, new: QuotaLimit, admin: SiteAdmin, session: WriteSession) -> Quota:
    """Change how many slots of a device the team may occupy at once. For site admins."""
    return service.set_quota(session, team, device, new.limit)


@router.put("/teams/{team}/storage")
def set_storage(team: str, new: StorageLimit, admin: SiteAdmin, session: WriteSession) -> StorageUse:
    """Change how many bytes of files the team may store. For site admins."""
    return service.set_storage(session, team, new.limit_bytes)
