"""Sign-in with the identity provider, and the identities that are linked to the caller's account.

The provider sends the browser back to the sign-in page, which posts what it added to the address. So all errors are sentences on
that page, and the code of the provider reaches no log.
"""

from datetime import timedelta
from uuid import UUID

from fastapi import Request, Response

from trainwright.contracts.api.oidc import (
    IdentityLink,
    LinkedIdentity,
    ProviderAddress,
    ProviderCallback,
    ProviderSignedIn,
    ProviderSignIn,
    SignInProvider,
)
from trainwright_backend.api.dependencies import (
    CurrentDatabase,
    CurrentSettings,
    Provider,
    ReadSession,
    Recorded,
    WriteSession,
)
from trainwright_backend.auth import audit, oidc, passwords, service
from trainwright_backend.auth.identity_provider import IdentityProvider
from trainwright_backend.auth.policies import (
    SignedIn,
    clear_provider_sign_in,
    is_known_browser,
    optional_person,
    provider_sign_in,
    remember_provider_sign_in,
    session_token,
    sign_browser_in,
)
from trainwright_backend.auth.tables import Account
from trainwright_backend.core.counters import SIGN_INS_REFUSED
from trainwright_backend.core.db import Database
from trainwright_backend.core.errors import Unauthorized
from trainwright_backend.core.policy import GuardedRoute, ProviderRoute, SignInRoute, public
from trainwright_backend.core.resource_router import ResourceRouter
from trainwright_backend.core.settings import Settings
from trainwright_backend.teams import linked_identities

sign_in_router = ResourceRouter(prefix="/auth/oidc", tags=["accounts"], route_class=ProviderRoute)
account_router = ResourceRouter(prefix="/me/oidc", tags=["accounts"], route_class=GuardedRoute)
password_router = ResourceRouter(prefix="/me/oidc", tags=["accounts"], route_class=SignInRoute)


@sign_in_router.get("", dependencies=[public("the sign-in page shows the provider's name")])
def get_sign_in_provider(settings: CurrentSettings) -> SignInProvider:
    """The identity provider with which people can sign in."""
    return SignInProvider(name=settings.oidc_label if settings.oidc_issuer else None)


@sign_in_router.post("/start", dependencies=[public("begins a sign-in of this browser, and reveals nothing")])
def start_provider_sign_in(
    given: ProviderSignIn, response: Response, settings: CurrentSettings, provider: Provider
) -> ProviderAddress:
    """Begin to sign in with the identity provider: the response says where the browser goes, and sets a cookie that is valid for ten
    minutes."""
    return _begin(response, settings, provider, given.next)


@sign_in_router.post("/finish", dependencies=[public("the provider's code is the proof of identity")])
def finish_provider_sign_in(
    callback: ProviderCallback,
    request: Request,
    response: Response,
    database: CurrentDatabase,
    settings: CurrentSettings,
    provider: Provider,
) -> ProviderSignedIn:
    """Sign in with the provider's response, or link its identity to your account if you began that; sets the session cookie."""
    try:
        pending = oidc.read_pending_sign_in(settings, provider_sign_in(request, settings), callback)
        if pending.link_to is not None:
            _require_same_person(request, settings, pending.link_to)
        identity = oidc.prove(settings, provider, pending, callback)
        signed_in = _sign_in(request, response, database, settings, pending, identity)
    except Unauthorized:
        SIGN_INS_REFUSED.labels("provider").inc()
        raise
    clear_provider_sign_in(response, settings)
    return signed_in


@account_router.get("")
def list_identities(person: SignedIn, session: ReadSession) -> list[LinkedIdentity]:
    """The identities at identity providers that sign in to your account."""
    return linked_identities.list_identities(session, person.user_id)


@password_router.post("", dependencies=[Recorded])
def start_identity_link(
    given: IdentityLink,
    person: SignedIn,
    request: Request,
    response: Response,
    database: CurrentDatabase,
    settings: CurrentSettings,
    provider: Provider,
) -> ProviderAddress:
    """Begin to link your identity at the provider to your account, so that you can sign in with it. Requires your password."""
    known = is_known_browser(request, settings, person.email)
    passwords.confirm_password(database, settings, person.email, given.current_password, known_browser=known)
    return _begin(response, settings, provider, given.next, person.user_id)


@account_router.delete("/{identity}", status_code=204)
def unlink_identity(identity: str, person: SignedIn, session: WriteSession) -> None:
    """Unlink an identity from your account. Refused if you have no password, because you could no longer sign in."""
    linked_identities.unlink(session, person.user_id, identity)


def _begin(
    response: Response,
    settings: Settings,
    provider: IdentityProvider,
    next_page: str,
    link_to: UUID | None = None,
) -> ProviderAddress:
    url, pending = oidc.begin(settings, provider, next_page, link_to)
    remember_provider_sign_in(response, settings, pending)
    return ProviderAddress(url=url)


def _require_same_person(request: Request, settings: Settings, user_id: UUID) -> None:
    person = optional_person(request) if session_token(request, settings) is not None else None
    if person is None or person.user_id != user_id:
        detail = (
            "You are no longer signed in as the person who began this. Sign in, and link the identity again."
        )
        raise Unauthorized(detail)


def _sign_in(
    request: Request,
    response: Response,
    database: Database,
    settings: Settings,
    pending: oidc.PendingSignIn,
    identity: oidc.Identity,
) -> ProviderSignedIn:
    with database.write() as session:
        if pending.link_to is None:
            account = linked_identities.account_of(session, settings, identity)
            lifetime = timedelta(hours=settings.oidc_session_hours)
            token = service.open_session(
                session, settings, account, lifetime=lifetime, provider=settings.oidc_label
            )
            sign_browser_in(response, settings, token, account.email)
        else:
            account = session.get_one(Account, pending.link_to)
            linked_identities.link(session, account.id, identity)
        person = service.me(session, account.id)
        audit.remember_caller(request, account, audit.BROWSER)
        audit.record(session, request)
    return ProviderSignedIn(me=person, next=pending.next)


router = ResourceRouter()
router.include_router(sign_in_router)
router.include_router(account_router)
router.include_router(password_router)
