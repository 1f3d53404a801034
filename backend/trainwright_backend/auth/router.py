"""Signing in and out, one's own account, and API keys."""

from fastapi import APIRouter, Request, Response

from trainwright.contracts.api.people import ApiKey, CreatedKey, Me, NewKey, SignIn
from trainwright_backend.auth import keys, passwords, service
from trainwright_backend.auth.policies import (
    SignedIn,
    clear_session_cookie,
    session_token,
    set_session_cookie,
)
from trainwright_backend.core.db import ReadSession, WriteSession
from trainwright_backend.core.policy import GuardedRoute, public

router = APIRouter(tags=["accounts"], route_class=GuardedRoute)


@router.post("/auth/sign-in", dependencies=[public("a password is how one becomes somebody")])
def sign_in(given: SignIn, request: Request, response: Response) -> Me:
    """Sign in with e-mail and password; sets the session cookie."""
    database, settings = request.app.state.database, request.app.state.settings
    account = passwords.check_password(database, settings, given.email, given.password)
    with database.write() as session:
        token = service.open_session(session, settings, account)
        person = service.me(session, account.id)
    set_session_cookie(response, settings, token)
    return person


@router.post("/auth/sign-out", status_code=204, dependencies=[public("ends only the session that is sent")])
def sign_out(request: Request, response: Response, session: WriteSession) -> None:
    """End this browser's session."""
    settings = request.app.state.settings
    token = session_token(request, settings)
    if token is not None:
        service.close_session(session, settings, token)
    clear_session_cookie(response, settings)


@router.get("/me")
def get_me(person: SignedIn, session: ReadSession) -> Me:
    """Who you are, and your teams."""
    return service.me(session, person.user_id)


@router.get("/me/keys")
def list_keys(person: SignedIn, session: ReadSession) -> list[ApiKey]:
    """Your API keys, without their secrets."""
    return keys.list_keys(session, person.user_id)


@router.post("/me/keys", status_code=201)
def create_key(new: NewKey, person: SignedIn, request: Request, session: WriteSession) -> CreatedKey:
    """Make an API key that acts as you. Its secret is in this answer only."""
    return keys.create_key(session, request.app.state.settings, person.user_id, new.name)


@router.delete("/me/keys/{key}", status_code=204)
def delete_key(key: str, person: SignedIn, session: WriteSession) -> None:
    """Revoke an API key of yours."""
    keys.delete_key(session, person.user_id, key)
