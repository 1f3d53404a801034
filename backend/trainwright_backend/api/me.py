"""The caller's account, password, API keys and browser sessions."""

from fastapi import Request, Response

from trainwright.contracts.api.people import (
    AccountDeletion,
    ApiKey,
    CreatedKey,
    Me,
    NewKey,
    PasswordChange,
    ProfileChange,
    SignedInBrowser,
)
from trainwright_backend.api.dependencies import (
    CurrentDatabase,
    CurrentSettings,
    ReadSession,
    Recorded,
    WriteSession,
)
from trainwright_backend.auth import audit, keys, passwords, service
from trainwright_backend.auth.policies import (
    KeyHolder,
    SignedIn,
    clear_session_cookie,
    is_known_browser,
    session_token,
)
from trainwright_backend.core.policy import GuardedRoute, SignInRoute
from trainwright_backend.core.resource_router import ResourceRouter
from trainwright_backend.teams import account_deletion

account_router = ResourceRouter(prefix="/me", tags=["accounts"], route_class=GuardedRoute)
password_router = ResourceRouter(prefix="/me", tags=["accounts"], route_class=SignInRoute)


@account_router.get("")
def get_me(person: SignedIn, session: ReadSession) -> Me:
    """Who you are, and your teams."""
    return service.me(session, person.user_id)


@account_router.patch("")
def change_profile(change: ProfileChange, person: SignedIn, session: WriteSession) -> Me:
    """Change your name. Runs and datasets keep the name under which you created them."""
    return service.change_name(session, person.user_id, change.name)


@password_router.post("/password", status_code=204, dependencies=[Recorded])
def change_password(
    change: PasswordChange,
    person: SignedIn,
    request: Request,
    database: CurrentDatabase,
    settings: CurrentSettings,
) -> None:
    """Change your password. It signs you out in all other browsers; your API keys stay valid."""
    known = is_known_browser(request, settings, person.email)
    kept = session_token(request, settings)
    passwords.change_password(
        database, settings, person.email, change, kept_session=kept, known_browser=known
    )


@password_router.post("/delete", status_code=204)
def delete_account(
    given: AccountDeletion,
    person: SignedIn,
    request: Request,
    response: Response,
    database: CurrentDatabase,
    settings: CurrentSettings,
) -> None:
    """Delete your account, with its sessions, API keys and memberships. Your runs and datasets stay in their teams under your
    name. The last owner of a team cannot, nor can the last site admin."""
    known = is_known_browser(request, settings, person.email)
    passwords.confirm_password(database, settings, person.email, given.current_password, known_browser=known)
    with database.write() as session:
        account_deletion.delete_account(session, person.user_id)
        audit.record(session, request)
    clear_session_cookie(response, settings)


@account_router.get("/keys")
def list_keys(person: SignedIn, session: ReadSession) -> list[ApiKey]:
    """Your API keys, without their secrets."""
    return keys.list_keys(session, person.user_id)


@account_router.post("/keys", status_code=201)
def create_key(new: NewKey, person: SignedIn, session: WriteSession, settings: CurrentSettings) -> CreatedKey:
    """Create an API key that acts as you, within its scope. Its secret is shown only in this response."""
    return keys.create_key(session, settings, person.user_id, new)


@account_router.delete("/keys/current", status_code=204)
def delete_used_key(person: KeyHolder, session: WriteSession) -> None:
    """Revoke the API key of this request, whatever its scope."""
    keys.delete_used_key(session, person.key_id)


@account_router.delete("/keys/{key}", status_code=204)
def delete_key(key: str, person: SignedIn, session: WriteSession) -> None:
    """Revoke one of your API keys."""
    keys.delete_key(session, person.user_id, key)


@account_router.get("/sessions")
def list_sessions(
    person: SignedIn, request: Request, session: ReadSession, settings: CurrentSettings
) -> list[SignedInBrowser]:
    """The browsers in which you are signed in, newest first."""
    return service.list_sessions(session, settings, person.user_id, session_token(request, settings))


@account_router.delete("/sessions/{session_id}", status_code=204)
def end_session(session_id: str, person: SignedIn, session: WriteSession) -> None:
    """Sign one of your browsers out."""
    service.end_session(session, person.user_id, session_id)


router = ResourceRouter()
router.include_router(account_router)
router.include_router(password_router)
