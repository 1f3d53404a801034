"""The caller's account and API keys."""

from fastapi import APIRouter

from trainwright.contracts.api.people import ApiKey, CreatedKey, Me, NewKey
from trainwright_backend.api.dependencies import CurrentSettings, ReadSession, WriteSession
from trainwright_backend.auth import keys, service
from trainwright_backend.auth.policies import SignedIn
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
