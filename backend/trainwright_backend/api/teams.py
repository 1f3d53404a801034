"""Teams: members, invitations, quota and storage."""

from typing import Annotated

from fastapi import Query, Response

from trainwright.contracts.api.envelopes import Page
from trainwright.contracts.api.people import (
    Invitation,
    Member,
    MemberChange,
    NewInvitation,
    NewTeam,
    PendingInvitation,
    Quota,
    QuotaLimit,
    RunsOfRemoved,
    StorageLimit,
    StorageUse,
    Team,
    TeamChange,
)
from trainwright_backend.api.dependencies import (
    CurrentSettings,
    ReadSession,
    RequestedAddress,
    TeamDeletion,
    WriteSession,
)
from trainwright_backend.api.paging import Paged, page_of
from trainwright_backend.auth.policies import Leaver, Owner, SignedIn, SiteAdmin, Viewer
from trainwright_backend.checkpoints import team_deletion
from trainwright_backend.core.ids import parse_id
from trainwright_backend.core.policy import GuardedRoute
from trainwright_backend.core.resource_router import ResourceRouter
from trainwright_backend.runs.joined_nodes import with_joined_slots, with_share_warning
from trainwright_backend.runs.service import cancel_runs_of
from trainwright_backend.teams import invitations, members, service

router = ResourceRouter(prefix="/teams", tags=["teams"], route_class=GuardedRoute)


@router.get("")
def list_teams(person: SignedIn, session: ReadSession) -> list[Team]:
    """The teams you are in."""
    return service.list_teams(session, person.user_id)


@router.post("", status_code=201)
def create_team(new: NewTeam, admin: SiteAdmin, session: WriteSession, settings: CurrentSettings) -> Team:
    """Create a team; you become its owner. For site admins."""
    return service.create_team(
        session, new, admin.user_id, settings.default_quota, settings.default_storage_gib
    )


@router.get("/{team}")
def get_team(access: Viewer, session: ReadSession) -> Team:
    """A team with its quota and storage."""
    team = service.show_team(session, access.team_id)
    return team.model_copy(update={"quota": with_joined_slots(session, team.quota)})


@router.patch("/{team}")
def rename_team(change: TeamChange, access: Owner, session: WriteSession) -> Team:
    """Change the team's name. Its slug, which addresses, scripts and links contain, does not change."""
    return service.rename_team(session, access.team_id, change.name)


@router.delete("/{team}", status_code=204)
def delete_team(
    access: Owner,
    session: TeamDeletion,
    confirm: Annotated[str, Query(max_length=80, description="The team's slug.")],
) -> None:
    """Delete the team with everything it has: runs, checkpoints, datasets, uploads and usage. For owners, and only once all its runs
    have ended. Nothing of it can be restored; the log of site admins says who deleted it."""
    team_deletion.delete_team(session, access.team_id, access.user_id, access.team_slug, confirm)


@router.get("/{team}/members", response_model=Page[Member])
def list_members(access: Viewer, session: ReadSession, asked: Paged) -> Page[Member] | Response:
    """The people of a team."""
    return page_of(members.list_members(session, access.team_id), asked, lambda member: member.id)


@router.delete("/{team}/members/me", status_code=204)
def leave_team(access: Leaver, session: WriteSession) -> None:
    """Leave the team. Your keys no longer work for it; your runs continue and stay. The last owner cannot leave."""
    members.leave(session, access.team_id, access.user_id)


@router.patch("/{team}/members/{member}")
def change_role(member: str, change: MemberChange, access: Owner, session: WriteSession) -> Member:
    """Change a member's role. The last owner keeps the role. If an owner gets another role, their pending invitations
    are revoked."""
    return members.change_role(session, access.team_id, access.user_id, member, change.role)


@router.delete("/{team}/members/{member}", status_code=204)
def remove_member(
    member: str, access: Owner, session: WriteSession, runs: RunsOfRemoved = RunsOfRemoved.KEEP
) -> None:
    """Remove a person from the team. Their keys no longer work for it, and their pending invitations are revoked. Their unfinished
    runs continue, or are cancelled with `runs=cancel`; what they created stays. The last owner cannot be removed."""
    if runs is RunsOfRemoved.CANCEL:
        cancel_runs_of(session, access.team_id, parse_id("user", member), access.user_name)
    members.remove_member(session, access.team_id, access.user_id, member)


@router.post("/{team}/invitations", status_code=201)
def create_invitation(
    new: NewInvitation,
    access: Owner,
    session: WriteSession,
    settings: CurrentSettings,
    requested: RequestedAddress,
) -> Invitation:
    """Invite a person to the team. The response has the link to send to them; their earlier links no longer work."""
    return invitations.invite(session, settings, access.team_id, access.user_id, new, requested)


@router.get("/{team}/invitations", response_model=Page[PendingInvitation])
def list_invitations(access: Owner, session: ReadSession, asked: Paged) -> Page[PendingInvitation] | Response:
    """Pending invitations, newest first. Their links are not shown again."""
    found = invitations.open_invitations(session, access.team_id)
    return page_of(found, asked, lambda invitation: invitation.id)


@router.delete("/{team}/invitations/{invitation}", status_code=204)
def revoke_invitation(access: Owner, session: WriteSession, invitation: str) -> None:
    """Revoke an invitation; its link no longer works."""
    invitations.revoke_invitation(session, access.team_id, invitation)


@router.put("/{team}/quota/{device}")
def set_quota(team: str, device: str, new: QuotaLimit, admin: SiteAdmin, session: WriteSession) -> Quota:
    """Change how many slots of a device the team may occupy at once, and how many of them are its guaranteed share. The shares of
    all teams may exceed the slots of the nodes; the response then has a `warning`. For site admins."""
    return with_share_warning(session, service.set_quota(session, team, device, new))


@router.put("/{team}/storage")
def set_storage(team: str, new: StorageLimit, admin: SiteAdmin, session: WriteSession) -> StorageUse:
    """Change how many bytes of files the team may store. For site admins."""
    return service.set_storage(session, team, new.limit_bytes)
