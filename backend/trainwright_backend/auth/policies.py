"""Who may call a route, as types: ``def list_runs(access: Viewer, …)`` reads like the rule it is.

A person comes by a session cookie or by ``Authorization: Bearer tw_…``. In a team's routes an unknown team and one
the caller does not belong to are the same 404; a role that is too low is a 403. A site admin is nobody in a team
without a membership. Policies open and close a session of their own, so that a route that streams holds none.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Request, Response

from trainwright.contracts.api.people import Role
from trainwright_backend.auth import keys, service
from trainwright_backend.auth.tables import Account
from trainwright_backend.core.errors import Forbidden, NotFound, Unauthorized
from trainwright_backend.core.policy import Policy
from trainwright_backend.core.settings import Settings

MAY_DO = {Role.VIEWER: 0, Role.EDITOR: 1, Role.OWNER: 2}


@dataclass(frozen=True)
class Person:
    """Who calls."""

    user_id: UUID
    user_name: str
    email: str
    site_admin: bool


@dataclass(frozen=True)
class Access:
    """Who calls, and what they are in the team of the address."""

    user_id: UUID
    user_name: str
    site_admin: bool
    team_id: UUID
    team_slug: str
    role: Role


class IsSignedIn(Policy):
    """Anybody who is known."""

    def __call__(self, request: Request) -> Person:
        return self.once(request, lambda: _person(request))

    def ask(self, request: Request) -> Person:
        return self(request)


class IsSiteAdmin(Policy):
    """Who looks after the installation."""

    def __call__(self, request: Request) -> Person:
        return self.once(request, lambda: self._decide(request))

    def ask(self, request: Request) -> Person:
        return self(request)

    def _decide(self, request: Request) -> Person:
        person = _person(request)
        if not person.site_admin:
            raise Forbidden(
                "site_admin_only", "Only a site admin can do this. Ask the one of this installation."
            )
        return person


class IsInTeam(Policy):
    """Members of the team in the address whose role is ``least`` or more."""

    def __init__(self, least: Role) -> None:
        self.least = least

    def __call__(self, request: Request, team: str) -> Access:
        return self.once(request, lambda: self.decide(request, team))

    def ask(self, request: Request) -> Access:
        return self(request, request.path_params["team"])

    def decide(self, request: Request, team: str) -> Access:
        """Look anew, whatever was found before."""
        person = _person(request)
        with request.app.state.database.read() as session:
            found = service.find_membership(session, team, person.user_id)
        if found is None:
            raise NotFound(f"There is no team {team[:40]!r}, or you are not in it.")
        team_row, role = found
        if MAY_DO[role] < MAY_DO[self.least]:
            raise Forbidden(
                "role_too_low",
                f"This needs the role {self.least} in {team}; yours is {role}. Ask an owner of the team.",
            )
        return Access(
            user_id=person.user_id,
            user_name=person.user_name,
            site_admin=person.site_admin,
            team_id=team_row.id,
            team_slug=team_row.slug,
            role=role,
        )


def still_in_team(request: Request, access: Access) -> Callable[[], bool]:
    """A question for streams, which outlive the answer: may their reader still look at the team?"""
    policy = IsInTeam(Role.VIEWER)

    def permitted() -> bool:
        try:
            return policy.decide(request, access.team_slug).team_id == access.team_id
        except (Unauthorized, NotFound):
            return False

    return permitted


SignedIn = Annotated[Person, Depends(IsSignedIn())]
SiteAdmin = Annotated[Person, Depends(IsSiteAdmin())]
Viewer = Annotated[Access, Depends(IsInTeam(Role.VIEWER))]
Editor = Annotated[Access, Depends(IsInTeam(Role.EDITOR))]
Owner = Annotated[Access, Depends(IsInTeam(Role.OWNER))]


def person_or_nobody(request: Request) -> Person | None:
    """Who calls a public route, when it can be told."""
    try:
        return _person(request)
    except Unauthorized:
        return None


def session_token(request: Request, settings: Settings) -> str | None:
    """The token in the session cookie."""
    return request.cookies.get(_cookie_name(settings))


def set_session_cookie(response: Response, settings: Settings, token: str) -> None:
    """Sign a browser in: no script reads the cookie, and other sites' forms do not send it."""
    response.set_cookie(
        _cookie_name(settings),
        token,
        max_age=int(service.SESSION_LIFE.total_seconds()),
        httponly=True,
        secure=settings.https,
        samesite="lax",
    )


def clear_session_cookie(response: Response, settings: Settings) -> None:
    response.delete_cookie(_cookie_name(settings), httponly=True, secure=settings.https, samesite="lax")


def _cookie_name(settings: Settings) -> str:
    """Browsers bind a ``__Host-`` cookie to this very host, and drop it on plain http."""
    return "__Host-trainwright" if settings.https else "trainwright"


def _person(request: Request) -> Person:
    account = _account(request)
    return Person(account.id, account.name, account.email, account.site_admin)


def _account(request: Request) -> Account:
    settings = request.app.state.settings
    database = request.app.state.database
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        account = keys.account_of_key(database, settings, secret.strip())
        if account is None:
            raise Unauthorized(
                "This API key is not valid or was revoked. Make a new one on your account's page."
            )
        return account
    token = session_token(request, settings)
    if token is not None:
        with database.read() as session:
            account = service.account_of_session(session, settings, token)
        if account is not None:
            return account
    raise Unauthorized("Sign in first, or send an API key as `Authorization: Bearer tw_…`.")
