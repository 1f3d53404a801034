"""Policies as types: ``def list_runs(access: Viewer, …)`` reads like the rule it enforces.

A person authenticates by a session cookie or by ``Authorization: Bearer tw_…``. An API key has a scope, which can allow
less than its owner may do. In a team's routes, an unknown team and a team that the caller does not belong to give the
same 404; a role that is too low gives a 403. A site admin has no rights in a team without a membership. Policies open
and close their own session, so a route that streams has none open.
"""

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Request, Response

from trainwright.contracts.api.people import KeyScope, Role
from trainwright_backend.auth import audit, keys, oidc, service
from trainwright_backend.auth.passwords import known_browser_token
from trainwright_backend.core.errors import Forbidden, NotFound, Unauthorized
from trainwright_backend.core.policy import Policy
from trainwright_backend.core.settings import Settings

KNOWN_BROWSER_LIFETIME = timedelta(days=365)

ROLE_RANK = {Role.VIEWER: 0, Role.EDITOR: 1, Role.OWNER: 2}
SCOPE_RANK = {KeyScope.READ: 0, KeyScope.SUBMIT: 1, KeyScope.MANAGE: 2}

SCOPE_OF_ROLE = {Role.VIEWER: KeyScope.READ, Role.EDITOR: KeyScope.SUBMIT, Role.OWNER: KeyScope.MANAGE}
"""The least scope of a key for routes that need the role."""

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True)
class Person:
    """The caller."""

    user_id: UUID
    user_name: str
    email: str
    site_admin: bool
    scope: KeyScope
    """The scope of the API key; a browser session may do everything."""

    key_id: UUID | None
    """The API key; None for a browser session."""

    is_service: bool


@dataclass(frozen=True)
class Access:
    """The caller, and their role in the team of the address."""

    user_id: UUID
    user_name: str
    site_admin: bool
    team_id: UUID
    team_slug: str
    role: Role


class IsSignedIn(Policy):
    """Anyone who is signed in.

    Args:
        scope: the least scope of an API key to change something.
    """

    def __init__(self, scope: KeyScope = KeyScope.MANAGE) -> None:
        self.scope = scope

    async def __call__(self, request: Request) -> Person:
        return await self.decision(request, lambda: _person_in_scope(request, self.scope))

    def check(self, request: Request) -> Person:
        return self.cached(request, lambda: _person_in_scope(request, self.scope))


class IsSiteAdmin(Policy):
    """Site admins.

    Args:
        scope: the least scope of an API key, if reading needs more than `read`.
    """

    def __init__(self, scope: KeyScope = KeyScope.READ) -> None:
        self.scope = scope

    async def __call__(self, request: Request) -> Person:
        return await self.decision(request, lambda: self._decide(request))

    def check(self, request: Request) -> Person:
        return self.cached(request, lambda: self._decide(request))

    def _decide(self, request: Request) -> Person:
        person = _person_in_scope(request)
        require_scope(person, self.scope)
        if not person.site_admin:
            raise Forbidden(
                "site_admin_only", "Only a site admin can do this. Ask an admin of this installation."
            )
        return person


class IsInTeam(Policy):
    """Members of the team in the address with at least the role ``least``.

    Args:
        least: the role.
        scope: the least scope of an API key, if it is not that of the role.
    """

    def __init__(self, least: Role, scope: KeyScope | None = None) -> None:
        self.least = least
        self.scope = SCOPE_OF_ROLE[least] if scope is None else scope

    async def __call__(self, request: Request, team: str) -> Access:
        return await self.decision(request, lambda: self.decide(request, team))

    def check(self, request: Request) -> Access:
        team = request.path_params["team"]
        return self.cached(request, lambda: self.decide(request, team))

    def decide(self, request: Request, team: str) -> Access:
        """Decide without the cache."""
        person = _person(request)
        with request.app.state.database.read() as session:
            found = service.find_membership(session, team, person.user_id)
        if found is None:
            raise NotFound(f"There is no team {team[:40]!r}, or you are not in it.")
        team_row, role = found
        if ROLE_RANK[role] < ROLE_RANK[self.least]:
            raise Forbidden(
                "role_too_low",
                f"This requires the role {self.least} in {team}; yours is {role}. Ask an owner of the team.",
            )
        require_scope(person, self.scope)
        request.scope[audit.TEAM_KEY] = team_row.id
        return Access(
            user_id=person.user_id,
            user_name=person.user_name,
            site_admin=person.site_admin,
            team_id=team_row.id,
            team_slug=team_row.slug,
            role=role,
        )


def still_in_team(request: Request, access: Access) -> Callable[[], bool]:
    """A function that returns whether the reader is still in the team, for streams, which outlive the first check."""
    policy = IsInTeam(Role.VIEWER)

    def permitted() -> bool:
        try:
            return policy.decide(request, access.team_slug).team_id == access.team_id
        except (Unauthorized, NotFound):
            return False

    return permitted


SignedIn = Annotated[Person, Depends(IsSignedIn())]
KeyHolder = Annotated[Person, Depends(IsSignedIn(KeyScope.READ))]
"""Anyone who is signed in, about the key of the request."""

SiteAdmin = Annotated[Person, Depends(IsSiteAdmin())]
SiteManager = Annotated[Person, Depends(IsSiteAdmin(KeyScope.MANAGE))]
"""Site admins, who need a key of the scope `manage` also to read."""

Viewer = Annotated[Access, Depends(IsInTeam(Role.VIEWER))]
Editor = Annotated[Access, Depends(IsInTeam(Role.EDITOR))]
Owner = Annotated[Access, Depends(IsInTeam(Role.OWNER))]
Leaver = Annotated[Access, Depends(IsInTeam(Role.VIEWER, KeyScope.MANAGE))]
"""Any member, about their own membership."""


def require_scope(person: Person, least: KeyScope) -> None:
    """Refuse a key whose scope is too low.

    Raises:
        Forbidden: it is.
    """
    if SCOPE_RANK[person.scope] < SCOPE_RANK[least]:
        detail = f"This requires an API key with the scope {least}; yours has {person.scope}. Create one on the Settings page."
        raise Forbidden("scope_too_low", detail)


def optional_person(request: Request) -> Person | None:
    """The caller of a public route, if they are signed in."""
    try:
        return _person(request)
    except Unauthorized:
        return None


def session_token(request: Request, settings: Settings) -> str | None:
    """The token in the session cookie."""
    return request.cookies.get(_cookie_name(settings))


def sign_browser_in(response: Response, settings: Settings, token: str, email: str) -> None:
    """Set the cookie of a session, and one that stays after it and lets this browser sign in while others guess."""
    _set_cookie(response, settings, _cookie_name(settings), token, service.SESSION_LIFETIME)
    proof = known_browser_token(settings, email)
    _set_cookie(response, settings, _known_browser_cookie_name(settings), proof, KNOWN_BROWSER_LIFETIME)


def is_known_browser(request: Request, settings: Settings, email: str) -> bool:
    """Whether the account with this address has signed in with this browser before."""
    proof = request.cookies.get(_known_browser_cookie_name(settings), "")
    return hmac.compare_digest(proof.encode(), known_browser_token(settings, email).encode())


def remember_provider_sign_in(response: Response, settings: Settings, begun: str) -> None:
    """Set the cookie of a sign-in that the browser began at the identity provider."""
    lifetime = timedelta(seconds=oidc.LIFETIME_SECONDS)
    _set_cookie(response, settings, _provider_cookie_name(settings), begun, lifetime)


def provider_sign_in(request: Request, settings: Settings) -> str:
    """The cookie of the sign-in that this browser began; empty if it began none."""
    return request.cookies.get(_provider_cookie_name(settings), "")


def clear_provider_sign_in(response: Response, settings: Settings) -> None:
    response.delete_cookie(
        _provider_cookie_name(settings), httponly=True, secure=settings.https, samesite="lax"
    )


def clear_session_cookie(response: Response, settings: Settings) -> None:
    response.delete_cookie(_cookie_name(settings), httponly=True, secure=settings.https, samesite="lax")


def _set_cookie(response: Response, settings: Settings, name: str, value: str, lifetime: timedelta) -> None:
    """Set a cookie that scripts cannot read and forms of other sites do not send."""
    max_age = int(lifetime.total_seconds())
    response.set_cookie(name, value, max_age=max_age, httponly=True, secure=settings.https, samesite="lax")


def _cookie_name(settings: Settings) -> str:
    """Browsers bind a ``__Host-`` cookie to exactly this host, and drop it on plain http."""
    return "__Host-trainwright" if settings.https else "trainwright"


def _known_browser_cookie_name(settings: Settings) -> str:
    return f"{_cookie_name(settings)}-browser"


def _provider_cookie_name(settings: Settings) -> str:
    return f"{_cookie_name(settings)}-provider"


def _person_in_scope(request: Request, to_change: KeyScope = KeyScope.MANAGE) -> Person:
    person = _person(request)
    changes = request.method not in SAFE_METHODS
    require_scope(person, to_change if changes else KeyScope.READ)
    if changes and person.is_service and to_change is KeyScope.MANAGE:
        detail = "A service account cannot change this. An owner of its team manages it on the Settings page."
        raise Forbidden("service_account", detail)
    return person


def _person(request: Request) -> Person:
    caller = _caller(request)
    account = caller.account
    audit.remember_caller(request, account, caller.via)
    return Person(
        account.id,
        account.name,
        account.email,
        account.site_admin,
        caller.scope,
        caller.key_id,
        account.is_service,
    )


def _caller(request: Request) -> keys.KeyOwner:
    settings = request.app.state.settings
    database = request.app.state.database
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        owner = keys.owner_of_key(database, settings, secret.strip())
        if owner is None:
            raise Unauthorized(
                "This API key is not valid or was revoked. Create a new one on the Settings page."
            )
        return owner
    token = session_token(request, settings)
    if token is not None:
        address = request.client.host if request.client else ""
        user_agent = request.headers.get("user-agent", "")
        account = service.account_of_session(database, settings, token, user_agent, address)
        if account is not None:
            return keys.KeyOwner(account, KeyScope.MANAGE, audit.BROWSER)
    raise Unauthorized("Sign in first, or send an API key as `Authorization: Bearer tw_…`.")
