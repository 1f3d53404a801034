"""Service accounts of a team, and their keys; for owners."""

from trainwright.contracts.api.people import CreatedKey, NewKey, RunsOfRemoved
from trainwright.contracts.api.service_accounts import NewServiceAccount, ServiceAccount
from trainwright_backend.api.dependencies import CurrentSettings, ReadSession, WriteSession
from trainwright_backend.auth.policies import Owner
from trainwright_backend.core.policy import GuardedRoute
from trainwright_backend.core.resource_router import ResourceRouter
from trainwright_backend.runs.service import cancel_runs_of
from trainwright_backend.teams import service_accounts

router = ResourceRouter(prefix="/teams/{team}/service-accounts", tags=["teams"], route_class=GuardedRoute)


@router.get("")
def list_service_accounts(access: Owner, session: ReadSession) -> list[ServiceAccount]:
    """The team's service accounts, with their keys but without the keys' secrets."""
    return service_accounts.list_service_accounts(session, access.team_id)


@router.post("", status_code=201)
def create_service_account(new: NewServiceAccount, access: Owner, session: WriteSession) -> ServiceAccount:
    """Create a service account: a member of the team that is a program. It cannot sign in, and acts only through its keys."""
    return service_accounts.create_service_account(session, access.team_id, access.user_id, new)


@router.delete("/{account}", status_code=204)
def delete_service_account(
    account: str, access: Owner, session: WriteSession, runs: RunsOfRemoved = RunsOfRemoved.KEEP
) -> None:
    """Delete a service account with its keys. Its unfinished runs continue, or are cancelled with `runs=cancel`; what it created stays
    in the team under its name."""
    if runs is RunsOfRemoved.CANCEL:
        found = service_accounts.find_service_account(session, access.team_id, account)
        cancel_runs_of(session, access.team_id, found.id, access.user_name)
    service_accounts.delete_service_account(session, access.team_id, access.user_id, account)


@router.post("/{account}/keys", status_code=201)
def create_service_key(
    account: str, new: NewKey, access: Owner, session: WriteSession, settings: CurrentSettings
) -> CreatedKey:
    """Create a key of a service account, which acts as it within its scope. Its secret is shown only in this response."""
    return service_accounts.create_service_key(
        session, settings, access.team_id, access.user_id, account, new
    )


@router.delete("/{account}/keys/{key}", status_code=204)
def delete_service_key(account: str, key: str, access: Owner, session: WriteSession) -> None:
    """Revoke a key of a service account."""
    service_accounts.delete_service_key(session, access.team_id, account, key)
