"""Guards decide before the body, hold for slow bodies, and are required: a route without one stops the start."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from sqlalchemy import delete, select

from tests.backend.access.rules import EXPECTED, TEAM, UNKNOWN_IDS, Caller, T, expected_refusal, is_refused
from tests.backend.conftest import Site
from tests.backend.scripted_agent import Scene
from trainwright.contracts.api.people import Role
from trainwright_backend.auth.tables import Membership, Team
from trainwright_backend.core import policy
from trainwright_backend.core.policy import (
    GuardedRoute,
    RouteWithoutPolicyError,
    public,
    require_policy_on_every_route,
)
from trainwright_backend.core.settings import Settings
from trainwright_backend.main import create_app


def test_callers_without_rights_are_refused_before_the_body_is_read(
    app: FastAPI, people: dict[str, TestClient]
) -> None:
    """FastAPI by itself parses the body first: a stranger would get a 422, after any number of bytes."""
    callers = [
        Caller("nobody", people["anonymous"], is_person=False),
        Caller("owner of another team", people["stranger"]),
        Caller("viewer", people["viewer"], role=Role.VIEWER),
    ]
    tried = []
    for route in EXPECTED:
        method, _, path = route.partition(" ")
        if method not in ("POST", "PUT", "PATCH", "DELETE"):
            continue
        for caller in callers:
            body = Sent()
            response = asyncio.run(send(app, caller.client, method, path.format_map(UNKNOWN_IDS), body))
            refusal = expected_refusal(caller, route)
            if refusal is not None and EXPECTED[route] != "signed link":
                assert is_refused(response, refusal), (caller.kind, route, response.text)
                assert body.pieces == 0, (caller.kind, route, "the body was read")
                tried.append((caller.kind, route))
    assert ("nobody", f"POST {T}/runs") in tried and ("viewer", f"PUT {T}/runs/{{run}}/layout") in tried
    assert ("owner of another team", "POST /api/v1/agent/runs/{run}/batches") in tried


def test_callers_with_rights_get_the_errors_of_the_body(app: FastAPI, people: dict[str, TestClient]) -> None:
    body = Sent()
    response = asyncio.run(send(app, people["editor"], "POST", f"/api/v1/teams/{TEAM}/runs", body))
    assert (response.status_code, body.pieces) == (422, 2)


@pytest.mark.both_databases
def test_callers_who_lose_rights_during_a_slow_body_are_refused(
    site: Site, app: FastAPI, people: dict[str, TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "CACHE_SECONDS", -1.0)
    name = "a recipe that must not be stored"

    class Leaving(Sent):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield b"{"
            with site.app.state.database.write() as session:
                team = session.scalars(select(Team.id).where(Team.slug == TEAM)).one()
                session.execute(delete(Membership).where(Membership.team_id == team))
            yield f'"name": "{name}", "spec": {{}}}}'.encode()

    address = f"/api/v1/teams/{TEAM}/recipes"
    response = asyncio.run(send(app, people["editor"], "POST", address, Leaving()))
    assert response.status_code == 404 and "There is no team" in response.text


class Sent:
    """A body that is not JSON, and counts how much of it was read."""

    def __init__(self) -> None:
        self.pieces = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in (b'{"name', b"<"):
            self.pieces += 1
            yield piece


async def send(app: FastAPI, person: TestClient, method: str, address: str, body: Sent) -> httpx.Response:
    """Send without the test client, which reads the entire body first."""
    headers = {"Content-Type": "application/json", **person.headers}
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
        client.cookies = httpx.Cookies(person.cookies)
        return await client.request(method, address, content=body)


def test_a_spec_that_names_another_team_s_dataset_is_refused(
    scene: Scene, people: dict[str, TestClient]
) -> None:
    spec = {"name": "thief", "data": {"dataset": scene.dataset}, "resources": {"device": "cpu"}}
    response = people["stranger"].post("/api/v1/teams/initech/runs", json=spec)
    assert response.status_code == 422
    assert [problem["field"] for problem in response.json()["errors"]] == ["data.dataset"]


def test_a_route_without_policy_stops_the_start(settings: Settings) -> None:
    app = create_app(settings)

    @app.get("/api/v1/open-door")
    def unprotected_route() -> None: ...

    with pytest.raises(RouteWithoutPolicyError, match="open-door"):
        require_policy_on_every_route(app)


def test_a_mounted_application_counts_as_a_route_without_policy() -> None:
    app = FastAPI(openapi_url=None)

    @app.get("/guarded", dependencies=[public("a test")])
    def guarded() -> None: ...

    require_policy_on_every_route(app)
    app.mount("/side-door", FastAPI())
    with pytest.raises(RouteWithoutPolicyError, match="side-door"):
        require_policy_on_every_route(app)


def test_a_route_that_reads_the_body_before_its_policy_stops_the_start() -> None:
    def take(body: dict[str, str]) -> None: ...

    app = FastAPI(openapi_url=None)
    for kind, path in ((GuardedRoute, "/asks-first"), (APIRoute, "/reads-first")):
        require_policy_on_every_route(app)
        router = APIRouter(route_class=kind)
        router.post(path, dependencies=[public("a test")])(take)
        app.include_router(router)
    with pytest.raises(RouteWithoutPolicyError, match=r"read a body .*\] /reads-first$"):
        require_policy_on_every_route(app)
