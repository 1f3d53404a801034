# Generated from async_calls/people.py by infra/sync_client.py. Change that file.
"""Calls about a team's people: members, roles and invitations."""

from __future__ import annotations

from urllib.parse import urlencode

from trainwright.calls.team import TeamCalls
from trainwright.contracts.api.people import (
    CreatedKey,
    Invitation,
    KeyScope,
    Member,
    MemberChange,
    NewInvitation,
    NewKey,
    PendingInvitation,
    Role,
    RunsOfRemoved,
    Team,
    TeamChange,
)
from trainwright.contracts.api.service_accounts import NewServiceAccount, ServiceAccount


class PeopleCalls(TeamCalls):
    """Calls about the people of a team. Only owners can change other people."""

    def rename(self, name: str) -> Team:
        """Change the team's name. Its slug does not change. For owners."""
        return self._client.patch(self._path, Team, json=TeamChange(name=name).model_dump())

    def members(self) -> list[Member]:
        """The people of the team, by name."""
        return self._client.get_pages(f"{self._path}/members", Member)

    def change_role(self, member_id: str, role: Role) -> Member:
        """Give a member another role. The last owner keeps it. For owners."""
        change = MemberChange(role=role).model_dump(mode="json")
        return self._client.patch(f"{self._path}/members/{member_id}", Member, json=change)

    def delete_team(self, confirm: str) -> None:
        """Delete the team with everything it has. ``confirm``: its slug. For owners, once all its runs have ended."""
        self._client.delete(f"{self._path}?{urlencode({'confirm': confirm})}")

    def remove_member(self, member_id: str, runs: RunsOfRemoved = RunsOfRemoved.KEEP) -> None:
        """Remove a person from the team. Their keys no longer work for it; their unfinished runs continue, or are cancelled. For
        owners."""
        query = "" if runs is RunsOfRemoved.KEEP else f"?runs={runs}"
        self._client.delete(f"{self._path}/members/{member_id}{query}")

    def leave(self) -> None:
        """Leave the team. Your keys no longer work for it; your runs continue and stay."""
        self._client.delete(f"{self._path}/members/me")

    def invite(self, email: str, role: Role = Role.VIEWER) -> Invitation:
        """Invite a person to the team. The link to send to them is returned only here. For owners."""
        new = NewInvitation(email=email, role=role).model_dump(mode="json")
        return self._client.post(f"{self._path}/invitations", Invitation, json=new)

    def invitations(self) -> list[PendingInvitation]:
        """Pending invitations, newest first. For owners."""
        return self._client.get_pages(f"{self._path}/invitations", PendingInvitation)

    def revoke_invitation(self, invitation_id: str) -> None:
        """Revoke an invitation: its link stops working. For owners."""
        self._client.delete(f"{self._path}/invitations/{invitation_id}")

    def service_accounts(self) -> list[ServiceAccount]:
        """The team's service accounts with their keys, by name. For owners."""
        return self._client.get_list(f"{self._path}/service-accounts", ServiceAccount)

    def create_service_account(self, name: str, role: Role = Role.EDITOR) -> ServiceAccount:
        """Create a member that is a program. It cannot sign in, and acts only through its keys. For owners."""
        new = NewServiceAccount(name=name, role=role).model_dump(mode="json")
        return self._client.post(f"{self._path}/service-accounts", ServiceAccount, json=new)

    def delete_service_account(self, account_id: str, runs: RunsOfRemoved = RunsOfRemoved.KEEP) -> None:
        """Delete a service account with its keys. Its unfinished runs continue, or are cancelled. For owners."""
        query = "" if runs is RunsOfRemoved.KEEP else f"?runs={runs}"
        self._client.delete(f"{self._path}/service-accounts/{account_id}{query}")

    def create_service_key(
        self,
        account_id: str,
        name: str,
        scope: KeyScope = KeyScope.SUBMIT,
        lifetime_days: int | None = None,
    ) -> CreatedKey:
        """Create a key of a service account. Its secret is returned only here. For owners."""
        new = NewKey(name=name, scope=scope, lifetime_days=lifetime_days).model_dump(mode="json")
        return self._client.post(f"{self._path}/service-accounts/{account_id}/keys", CreatedKey, json=new)

    def revoke_service_key(self, account_id: str, key_id: str) -> None:
        """Revoke a key of a service account. For owners."""
        self._client.delete(f"{self._path}/service-accounts/{account_id}/keys/{key_id}")
