"""The caller's account, API keys and browser sessions."""

from fastapi import APIRouter, Request

from trainwright.contracts.api.people import ApiKey, CreatedKey, Me, NewKey, SignedInBrowser
from trainwright_backend.api.dependencies import CurrentSettings, ReadSession, WriteSession
from trainwright_backend.auth import keys, service
from trainwright_backend.auth.policies import SignedIn, session_token
from trainwright_backend.core.policy import GuardedRoute

router = APIRouter(prefix="/me", tags=["accounts"], route_class=GuardedRoute)


@router.get("")
def get_me(person: SignedIn, session: ReadSession) -> Me:
    """Who you are, and your teams."""
    return service.me(session, person.user_id)


@router.get("/keys")
def list_keys(person: SignedIn, session: ReadSession) -> list[ApiKey]:
    """Your API keys, without their secrets."""
    return keys.list_keys(session, person.user_id)


@router.post("/keys", status_code=201)
def create_key(new: NewKey, person: SignedIn, session: WriteSession, settings: CurrentSettings) -> CreatedKey:
    """Create an API key that acts as you. Its secret is shown only in this answer."""
    return keys.create_key(session, settings, person.user_id, new.name)


@router.delete("/keys/{key}", status_code=204)
def delete_key(key: str, person: SignedIn, session: WriteSession) -> None:
    """Revoke one of your API keys."""
    keys.delete_key(session, person.user_id, key)


@router.get("/sessions")
def list_sessions(
    person: SignedIn, request: Request, session: ReadSession, settings: CurrentSettings
) -> list[SignedInBrowser]:
    """The browsers in which you are signed in, newest first."""
    return service.list_sessions(session, settings, person.user_id, session_token(request, settings))


@router.delete("/sessions/{session_id}", status_code=204)
def end_session(session_id: str, person: SignedIn, session: WriteSession) -> None:
    """Sign one of your browsers out."""
    service.end_session(session, person.user_id, session_id)
