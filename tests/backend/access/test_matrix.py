"""Routes × callers × ids: each caller gets what the route's rule says, and a missing or weaker guard is noticed.

The routes are those of the application. The ids in addresses are unknown ones, those of rows that exist, and those of
another team's rows.
"""

from collections.abc import Callable, Iterator
from inspect import isawaitable
from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.routing import RouteContext
from sqlalchemy import select

from tests.backend.access.conftest import OTHER_TEAM
from tests.backend.access.rules import (
    EXPECTED,
    ROLE_ORDER,
    ROLES,
    SCOPE_ORDER,
    SECOND_RUN,
    UNKNOWN_IDS,
    Caller,
    Ids,
    body_for,
    call,
    expected_refusal,
    routes,
    surprises,
)
from trainwright.contracts.api.people import KeyScope, Role
from trainwright_backend.auth import policies
from trainwright_backend.auth.policies import Access, IsInTeam, IsSignedIn, IsSiteAdmin, Person
from trainwright_backend.auth.tables import Account, Team
from trainwright_backend.core.policy import Policy, Public, policies_of
from trainwright_backend.nodes.policies import CallingNode as CallingNode
from trainwright_backend.nodes.policies import IsNode
from trainwright_backend.nodes.tables import Node

Guard = Callable[..., object]
ADMITTED = frozenset(range(200, 300)) | {422}
"""Responses to a person who may read a row that exists. Some routes need a query that these tests do not send."""

DECIDED_AGAIN = [
    "DELETE /api/v1/teams/{team}/members/{member}: from the role editor",
    "DELETE /api/v1/teams/{team}/service-accounts/{account}: from the role editor",
]
"""Weaker guards that change nothing: the service decides the same once more, while the team's owners are locked."""


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """The guards decide in Python, and read memberships and keys with statements that other tests send to PostgreSQL."""
    return sqlite_url


def test_each_caller_gets_what_the_rule_of_the_route_says(app: FastAPI, callers: list[Caller]) -> None:
    assert [line for route, _ in routes(app) for line in surprises(callers, route)] == []


def test_only_permitted_callers_see_rows_that_exist(app: FastAPI, callers: list[Caller], rows: Ids) -> None:
    found: list[str] = []
    for route, _ in routes(app):
        if not _takes_ids(route) or EXPECTED[route] not in {*ROLES, "site admin"}:
            continue
        refused = [caller for caller in callers if expected_refusal(caller, route) is not None]
        found += surprises(refused, route, rows)
        if route.startswith("GET "):
            for caller in (caller for caller in callers if caller not in refused):
                response = call(caller.client, route, rows)
                if response.status_code not in ADMITTED:
                    found.append(f"{caller.kind}: {route} gives {response.status_code} {response.text[:300]}")
    assert found == []


def test_another_team_s_rows_are_unknown_in_one_s_own_team(
    app: FastAPI, callers: list[Caller], rows: Ids
) -> None:
    (stranger,) = (caller for caller in callers if caller.kind == "owner of another team")
    compared = []
    for route, _ in routes(app):
        if not _takes_ids(route) or EXPECTED[route] not in {*ROLES, "signed in"}:
            continue
        theirs, unknown = (
            _without_ids(call(stranger.client, route, ids), ids)
            for ids in ({**rows, "team": OTHER_TEAM}, {**UNKNOWN_IDS, "team": OTHER_TEAM})
        )
        assert theirs == unknown, route
        compared.append(route)
    assert len(compared) > 50


def _takes_ids(route: str) -> bool:
    """Whether the address has an id besides the team, or the body has one."""
    other = dict.fromkeys(UNKNOWN_IDS, "other")
    in_address = "{" in route.replace("{team}", "")
    return in_address or body_for(route, UNKNOWN_IDS) != body_for(route, other)


def _without_ids(response: Any, ids: Ids) -> tuple[int, str]:
    text = response.text.replace(response.headers["X-Request-ID"], "").replace(SECOND_RUN, "run")
    for name, value in ids.items():
        text = text.replace(value, name) if "_" in value else text
    return response.status_code, text


@pytest.mark.slow(target="databases")
def test_the_matrix_notices_each_guard_that_is_removed_or_weaker(
    app: FastAPI, callers: list[Caller], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each guard of each route in turn, as if its author had forgotten it or written a weaker one."""
    with app.state.database.read() as session:
        owner = session.scalars(select(Account).where(Account.email == "owner@acme.example")).one()
        node = session.scalars(select(Node)).one()
    tried, unnoticed = 0, []
    for route, context in routes(app):
        for guard in policies_of(context):
            if isinstance(guard, Public):
                continue
            for change, weaker in _weaker_guards(guard, route, owner, CallingNode(node.id, node.name)):
                with monkeypatch.context() as patch:
                    _replace_guard(patch, context, guard, weaker)
                    surprise = next(surprises(callers, route), None)
                tried += 1
                if surprise is None:
                    unnoticed.append(f"{route}: {change}")
                else:
                    assert "the response is 5" not in surprise, surprise  # it must not be noticed by a crash
    assert unnoticed == DECIDED_AGAIN
    assert tried > 250


def _replace_guard(patch: pytest.MonkeyPatch, context: RouteContext, guard: Policy, weaker: Guard) -> None:
    """Let ``weaker`` decide in place of ``guard``, in one route only: many routes share a guard."""
    kind: Any = type(guard)
    decide, check = kind.__call__, kind.check

    def is_replaced(self: Policy, request: Request) -> bool:
        return self is guard and request.scope.get("route") is context.original_route

    async def decide_or_replace(self: Policy, request: Request, **path: str) -> object:
        if not is_replaced(self, request):
            return await decide(self, request, **path)
        decision = weaker(request, **path)
        return await decision if isawaitable(decision) else decision

    def check_or_replace(self: Policy, request: Request) -> object:
        if not is_replaced(self, request):
            return check(self, request)
        if isinstance(weaker, Policy):
            return weaker.check(request)
        names = {"team": request.path_params["team"]} if isinstance(self, IsInTeam) else {}
        return weaker(request, **names)

    patch.setattr(kind, "__call__", decide_or_replace)
    patch.setattr(kind, "check", check_or_replace)


def _weaker_guards(
    guard: Policy, route: str, owner: Account, node: CallingNode
) -> Iterator[tuple[str, Guard]]:
    """Each with what it no longer asks for."""
    person = Person(
        owner.id,
        owner.name,
        owner.email,
        site_admin=True,
        scope=KeyScope.MANAGE,
        key_id=None,
        is_service=False,
    )

    def in_team(request: Request, team: str) -> Access:
        with request.app.state.database.read() as session:
            team_id = session.scalars(select(Team.id).where(Team.slug == team)).one()
        return Access(owner.id, owner.name, True, team_id, team, Role.OWNER)

    def if_signed_in(request: Request, team: str) -> Access:
        policies._person(request)
        return in_team(request, team)

    def with_any_key(request: Request) -> Person:
        return policies._person(request)

    def with_service_accounts(request: Request) -> Person:
        found = policies._person(request)
        policies.require_scope(found, KeyScope.MANAGE)
        return found

    is_safe = route.partition(" ")[0] in policies.SAFE_METHODS
    if isinstance(guard, IsInTeam):
        yield "anybody", in_team
        yield "anybody who is signed in", if_signed_in
        for role in ROLE_ORDER[: ROLE_ORDER.index(guard.least)][-1:]:
            yield f"from the role {role}", IsInTeam(role, guard.scope)
        for scope in SCOPE_ORDER[: SCOPE_ORDER.index(guard.scope)][-1:]:
            yield f"from the scope {scope}", IsInTeam(guard.least, scope)
    elif isinstance(guard, IsSiteAdmin):
        yield "anybody", lambda request: person
        yield "anybody who is signed in", IsSignedIn()
        if guard.scope is not KeyScope.READ:
            yield "from the scope read", IsSiteAdmin()
    elif isinstance(guard, IsSignedIn):
        yield "anybody", lambda request: person
        if not is_safe and guard.scope is KeyScope.MANAGE:
            yield "with any key", with_any_key
            yield "service accounts too", with_service_accounts
    elif isinstance(guard, IsNode):
        yield "anybody", lambda request: node
    else:
        yield "anybody", lambda request: None
