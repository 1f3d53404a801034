"""Who may call what: every route of the application, six kinds of callers, default deny.

`EXPECTED` is complete by test: a new route without a line here fails. Ids in the addresses are unknown ones, so a
permitted caller gets 404 or 422 for the id or the body, never 401 or 403.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute, iter_route_contexts
from fastapi.testclient import TestClient
from sqlalchemy import delete, select

from tests.backend.conftest import Site
from trainwright.contracts.api.people import KeyScope, Role
from trainwright_backend.auth import policies
from trainwright_backend.auth.tables import Account, Membership, Team
from trainwright_backend.core import policy
from trainwright_backend.core.ids import new_id, public_id
from trainwright_backend.core.policy import (
    GuardedRoute,
    RouteWithoutPolicyError,
    public,
    require_policy_on_every_route,
)
from trainwright_backend.core.settings import Settings
from trainwright_backend.main import create_app

T = "/api/v1/teams/{team}"
PEOPLE = ("anonymous", "stranger", "viewer", "editor", "owner", "site admin")
MEMBERS = {"viewer": PEOPLE[2:5], "editor": PEOPLE[3:5], "owner": PEOPLE[4:5]}

EXPECTED = {
    "GET /{path:page}": "public",
    "GET /metrics": "metrics token",
    "GET /api/v1/health": "public",
    "GET /api/v1/openapi.json": "public",
    "GET /api/v1/spec": "public",
    "GET /api/v1/series": "public",
    "GET /api/v1/blobs/{signed}": "signed link",
    "PUT /api/v1/blobs/{signed}": "signed link",
    "POST /api/v1/auth/sign-in": "public",
    "POST /api/v1/auth/sign-out": "public",
    "POST /api/v1/auth/link": "public",
    "POST /api/v1/auth/mailed-link": "public",
    "GET /api/v1/auth/link/{token}": "public",
    "GET /api/v1/me": "signed in",
    "PATCH /api/v1/me": "signed in",
    "POST /api/v1/me/password": "signed in",
    "POST /api/v1/me/delete": "signed in",
    "GET /api/v1/me/keys": "signed in",
    "POST /api/v1/me/keys": "signed in",
    "DELETE /api/v1/me/keys/{key}": "signed in",
    "GET /api/v1/me/sessions": "signed in",
    "DELETE /api/v1/me/sessions/{session_id}": "signed in",
    "GET /api/v1/teams": "signed in",
    "POST /api/v1/teams": "site admin",
    f"GET {T}": "viewer",
    f"PATCH {T}": "owner",
    f"DELETE {T}": "owner",
    f"GET {T}/members": "viewer",
    f"PATCH {T}/members/{{member}}": "owner",
    f"DELETE {T}/members/{{member}}": "owner",
    f"GET {T}/invitations": "owner",
    f"POST {T}/invitations": "owner",
    f"DELETE {T}/invitations/{{invitation}}": "owner",
    f"PUT {T}/quota/{{device}}": "site admin",
    f"PUT {T}/storage": "site admin",
    f"GET {T}/limits": "viewer",
    f"PUT {T}/limits": "site admin",
    f"GET {T}/limits/members": "viewer",
    f"PUT {T}/limits/members/{{member}}": "owner",
    f"GET {T}/uploads": "viewer",
    f"OPTIONS {T}/uploads": "public",
    f"POST {T}/uploads": "editor",
    f"POST {T}/uploads/preview": "editor",
    f"HEAD {T}/uploads/{{upload}}": "editor",
    f"PATCH {T}/uploads/{{upload}}": "editor",
    f"POST {T}/uploads/{{upload}}": "editor",
    f"DELETE {T}/uploads/{{upload}}": "editor",
    f"GET {T}/datasets": "viewer",
    f"POST {T}/datasets": "editor",
    f"POST {T}/datasets/count": "viewer",
    f"GET {T}/datasets/{{dataset}}": "viewer",
    f"DELETE {T}/datasets/{{dataset}}": "editor",
    f"POST {T}/datasets/{{dataset}}/versions": "editor",
    f"DELETE {T}/datasets/{{dataset}}/versions/{{number}}": "editor",
    f"GET {T}/datasets/{{dataset}}/versions/{{number}}/documents": "viewer",
    f"GET {T}/datasets/{{dataset}}/versions/{{number}}/rejected": "viewer",
    f"POST {T}/datasets/{{dataset}}/preparations": "editor",
    f"POST {T}/datasets/{{dataset}}/preparations/{{preparation}}/cancel": "editor",
    f"GET {T}/tokenizers": "viewer",
    f"POST {T}/tokenizers": "editor",
    f"DELETE {T}/tokenizers/{{tokenizer}}": "editor",
    f"GET {T}/queue": "viewer",
    f"PUT {T}/queue/order": "editor",
    f"GET {T}/runs": "viewer",
    f"POST {T}/runs": "editor",
    f"GET {T}/runs/groups": "viewer",
    f"GET {T}/runs/export": "viewer",
    f"GET {T}/views": "viewer",
    f"POST {T}/views": "viewer",
    f"DELETE {T}/views/{{view}}": "viewer",
    f"POST {T}/runs/validate": "viewer",
    f"POST {T}/runs/plan": "viewer",
    f"POST {T}/runs/what-if": "viewer",
    f"POST {T}/runs/estimate": "viewer",
    f"GET {T}/runs/{{run}}": "viewer",
    f"DELETE {T}/runs/{{run}}": "editor",
    f"PATCH {T}/runs/{{run}}": "editor",
    f"POST {T}/runs/{{run}}/clone": "editor",
    f"POST {T}/runs/{{run}}/fork": "editor",
    f"POST {T}/runs/bulk": "editor",
    f"POST {T}/runs/{{run}}/cancel": "editor",
    f"PUT {T}/runs/{{run}}/layout": "editor",
    f"POST {T}/runs/{{run}}/move": "editor",
    f"POST {T}/runs/{{run}}/pause": "editor",
    f"POST {T}/runs/{{run}}/resume": "editor",
    f"GET {T}/runs/{{run}}/events": "viewer",
    f"GET {T}/runs/{{run}}/samples": "viewer",
    f"GET {T}/runs/{{run}}/events/stream": "viewer",
    f"GET {T}/metrics": "viewer",
    f"GET {T}/runs/{{run}}/metrics": "viewer",
    f"GET {T}/runs/{{run}}/metrics/names": "viewer",
    f"GET {T}/runs/{{run}}/metrics/stream": "viewer",
    f"GET {T}/runs/{{run}}/logs": "viewer",
    f"GET {T}/runs/{{run}}/logs/{{attempt}}/{{file}}": "viewer",
    f"GET {T}/runs/{{run}}/logs/{{attempt}}/{{file}}/lines": "viewer",
    f"GET {T}/runs/{{run}}/logs/{{attempt}}/{{file}}/search": "viewer",
    f"GET {T}/runs/{{run}}/checkpoints": "viewer",
    f"GET {T}/runs/{{run}}/checkpoints/{{checkpoint}}/files": "viewer",
    f"GET {T}/runs/{{run}}/checkpoints/{{checkpoint}}/archive": "viewer",
    f"PATCH {T}/runs/{{run}}/checkpoints/{{checkpoint}}": "editor",
    f"DELETE {T}/runs/{{run}}/checkpoints/{{checkpoint}}": "editor",
    f"GET {T}/checkpoints": "viewer",
    f"POST {T}/checkpoints/retention": "editor",
    f"GET {T}/recipes": "viewer",
    f"POST {T}/recipes": "editor",
    f"DELETE {T}/recipes/{{recipe}}": "editor",
    f"GET {T}/usage": "viewer",
    f"GET {T}/usage/members": "viewer",
    f"GET {T}/usage/runs": "viewer",
    f"GET {T}/webhooks": "owner",
    f"POST {T}/webhooks": "owner",
    f"DELETE {T}/webhooks/{{webhook}}": "owner",
    f"POST {T}/webhooks/{{webhook}}/test": "owner",
    f"GET {T}/audit": "owner",
    f"GET {T}/audit/export": "owner",
    "GET /api/v1/audit": "site admin",
    "GET /api/v1/audit/export": "site admin",
    "GET /api/v1/nodes": "site admin",
    "PATCH /api/v1/nodes/{node}": "site admin",
    "DELETE /api/v1/nodes/{node}": "site admin",
    "POST /api/v1/join-tokens": "site admin",
    "POST /api/v1/agent/join": "public",
    "POST /api/v1/agent/heartbeat": "node",
    "POST /api/v1/agent/runs/{run}/claim": "node",
    "POST /api/v1/agent/runs/{run}/renew": "node",
    "POST /api/v1/agent/runs/{run}/batches": "node",
    "POST /api/v1/agent/runs/{run}/logs/{file}": "node",
    "POST /api/v1/agent/runs/{run}/uploads": "node",
    "POST /api/v1/agent/runs/{run}/checkpoints": "node",
    "POST /api/v1/agent/runs/{run}/export-job": "node",
    "POST /api/v1/agent/runs/{run}/end": "node",
    "GET /api/v1/agent/runs/{run}/offsets": "node",
    f"DELETE {T}/members/me": "viewer",  # last: afterwards its callers are no longer members
}

TEAM = "globex"
UNKNOWN = {
    "team": TEAM,
    "dataset": public_id("ds", new_id()),
    "upload": public_id("up", new_id()),
    "preparation": public_id("prep", new_id()),
    "tokenizer": public_id("tok", new_id()),
    "run": public_id("run", new_id()),
    "checkpoint": public_id("ckpt", new_id()),
    "recipe": public_id("recipe", new_id()),
    "member": public_id("user", new_id()),
    "view": public_id("view", new_id()),
    "invitation": public_id("invite", new_id()),
    "node": public_id("node", new_id()),
    "webhook": public_id("hook", new_id()),
    "key": public_id("key", new_id()),
    "session_id": "session_" + "0" * 24,
    "number": "1",
    "attempt": "1",
    "file": "rank-0.log",
    "device": "cpu",
    "token": "unknown",
    "signed": "unknown",
    "path": "runs",
}

BODIES = {
    "POST clone": {"name": "a copy"},
    "POST fork": {"name": "a fork"},
    "POST move": {"node": "node-a"},
    "PUT layout": {"parallelism": {}},
    "PUT order": {"runs": [UNKNOWN["run"], public_id("run", new_id())]},
    "PATCH {checkpoint}": {"pinned": True},
}
"""Bodies of routes that need more than an empty object, by method and end of the address."""


@pytest.fixture
def people(site: Site) -> dict[str, TestClient]:
    """One client for each kind of caller; the site admin belongs to no team of the matrix."""
    found = {"anonymous": site.anonymous(), "stranger": site.other_team("initech")}
    found["owner"] = site.other_team(TEAM)
    found |= {role: site.member(role, TEAM) for role in ("viewer", "editor")}
    with site.app.state.database.write() as session:
        admin = session.scalars(select(Account.id).where(Account.site_admin)).one()
        team = session.scalars(select(Team.id).where(Team.slug == TEAM)).one()
        session.execute(delete(Membership).where(Membership.user_id == admin, Membership.team_id == team))
    return found | {"site admin": site.admin}


def routes(app: FastAPI) -> Iterator[tuple[str, str]]:
    for route in iter_route_contexts(app.routes):
        for method in sorted(route.methods or set()):
            yield method, str(route.path)


def test_every_route_is_expected_and_every_expected_one_exists(app: FastAPI) -> None:
    assert {f"{method} {path}" for method, path in routes(app)} == set(EXPECTED)


def test_every_kind_of_caller_gets_what_the_route_allows(people: dict[str, TestClient]) -> None:
    assert surprises(people) == []


def test_the_matrix_detects_a_policy_that_admits_too_many(
    people: dict[str, TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(policies.ROLE_RANK, Role.EDITOR, policies.ROLE_RANK[Role.VIEWER])
    found = surprises(people)
    assert found and all(line.startswith("viewer") for line in found)


def surprises(people: dict[str, TestClient]) -> list[str]:
    """Responses that do not match `EXPECTED`."""
    found = []
    for route, rule in EXPECTED.items():
        method, _, path = route.partition(" ")
        address = path.replace("{path:page}", "runs").format_map(UNKNOWN)
        for kind, client in people.items():
            answer = client.request(method, address, **_body(method, path))
            bodiless = method == "HEAD" and answer.status_code == 404
            text = "There is no team" if bodiless else answer.text
            if not _fits(kind, rule, answer.status_code, text):
                found.append(
                    f"{kind}: {method} {address} is for {rule}, but {answer.status_code} {answer.text}"
                )
    return found


def _body(method: str, path: str) -> dict[str, object]:
    """A valid body for the route, so that only rights and ids decide."""
    if path.endswith("/search"):
        return {"params": {"q": "word"}}
    if method not in ("POST", "PUT", "PATCH") or "blobs" in path or "uploads/{upload}" in path:
        return {}
    last = path.rpartition("/")[2]
    return {"json": BODIES.get(f"{method} {last}", {})}


def _fits(kind: str, rule: str, status: int, text: str) -> bool:
    if status >= 500:
        return False
    if rule == "signed link":
        return status == 403
    if rule == "metrics token":  # not set in these tests, so nobody has it
        return status == 404
    if rule == "public":
        return status not in (401, 403)
    if kind == "anonymous" or rule == "node":
        return status == 401
    if rule == "site admin" and kind != "site admin":
        return status == 403
    if rule in MEMBERS and kind not in MEMBERS[rule]:
        inside = kind in MEMBERS["viewer"]
        return status == 403 if inside else (status == 404 and "There is no team" in text)
    return status not in (401, 403) and "There is no team" not in text


@pytest.mark.parametrize("scope", KeyScope)
def test_a_key_can_do_only_what_its_scope_allows(site: Site, scope: KeyScope) -> None:
    """The key of a person who may do everything: owner of the team, and site admin."""
    site.admin.post("/api/v1/teams", json={"slug": "hooli", "name": "Hooli"})
    made = site.admin.post("/api/v1/me/keys", json={"name": "key", "scope": scope})
    key = site.anonymous()
    key.headers["Authorization"] = f"Bearer {made.json()['secret']}"
    found = []
    for route, rule in EXPECTED.items():
        method, _, path = route.partition(" ")
        if rule in ("public", "signed link", "metrics token", "node"):
            continue
        address = path.format_map(UNKNOWN | {"team": "hooli"})
        answer = key.request(method, address, **_body(method, path))
        allowed = policies.SCOPE_RANK[scope] >= policies.SCOPE_RANK[least_scope(method, path, rule)]
        refused = answer.status_code == 403 and (method == "HEAD" or answer.json()["code"] == "scope_too_low")
        if allowed == refused or answer.status_code == 401:
            found.append(f"{route}: {answer.status_code} {answer.text}")
    assert found == []


def least_scope(method: str, path: str, rule: str) -> KeyScope:
    """As documented."""
    if rule in MEMBERS and not path.endswith("/members/me"):
        return {"viewer": KeyScope.READ, "editor": KeyScope.SUBMIT, "owner": KeyScope.MANAGE}[rule]
    return KeyScope.READ if method == "GET" and not path.startswith("/api/v1/audit") else KeyScope.MANAGE


def test_callers_without_rights_are_refused_before_the_body_is_read(
    app: FastAPI, people: dict[str, TestClient]
) -> None:
    """FastAPI by itself parses the body first: a stranger would get a 422, after any number of bytes."""
    tried = []
    for route, rule in EXPECTED.items():
        method, _, path = route.partition(" ")
        if method not in ("POST", "PUT", "PATCH", "DELETE") or rule in ("public", "signed link"):
            continue
        for kind in ("anonymous", "stranger", "viewer"):
            body = Sent()
            answer = asyncio.run(send(app, people[kind], method, path.format_map(UNKNOWN), body))
            if _is_refused(kind, rule):
                assert _fits(kind, rule, answer.status_code, answer.text), (kind, route, answer.text)
                assert body.pieces == 0, (kind, route, "the body was read")
                tried.append((kind, route))
    assert ("anonymous", f"POST {T}/runs") in tried and ("viewer", f"PUT {T}/runs/{{run}}/layout") in tried
    assert ("stranger", "POST /api/v1/agent/runs/{run}/batches") in tried


def test_callers_with_rights_get_the_errors_of_the_body(app: FastAPI, people: dict[str, TestClient]) -> None:
    body = Sent()
    answer = asyncio.run(send(app, people["editor"], "POST", f"/api/v1/teams/{TEAM}/runs", body))
    assert (answer.status_code, body.pieces) == (422, 2)


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
    answer = asyncio.run(send(app, people["editor"], "POST", address, Leaving()))
    assert answer.status_code == 404 and "There is no team" in answer.text


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


def _is_refused(kind: str, rule: str) -> bool:
    if kind == "anonymous" or rule in ("node", "site admin"):
        return True
    return rule in MEMBERS and kind not in MEMBERS[rule]


def test_another_team_s_ids_are_unknown_under_one_s_own_team(
    site: Site, people: dict[str, TestClient], upload: object
) -> None:
    assert callable(upload)
    dataset = upload()
    spec = {"name": "theirs", "data": {"dataset": dataset["id"]}, "resources": {"device": "cpu"}}
    run = site.admin.post(f"{site.path}/runs", json=spec)
    assert run.status_code == 201, run.text
    foreign = UNKNOWN | {"team": "initech", "dataset": dataset["id"], "run": run.json()["id"]}
    for route, rule in EXPECTED.items():
        method, _, path = route.partition(" ")
        if rule not in MEMBERS or not ("{dataset}" in path or "{run}" in path):
            continue
        answer = people["stranger"].request(method, path.format_map(foreign), **_body(method, path))
        unknown = people["stranger"].request(
            method, path.format_map(UNKNOWN | {"team": "initech"}), **_body(method, path)
        )
        assert answer.status_code == unknown.status_code == 404, (route, answer.text)
        assert answer.json()["code"] == unknown.json()["code"]


def test_a_spec_that_names_another_team_s_dataset_is_refused(
    people: dict[str, TestClient], upload: object
) -> None:
    assert callable(upload)
    spec = {"name": "thief", "data": {"dataset": upload()["id"]}, "resources": {"device": "cpu"}}
    answer = people["stranger"].post("/api/v1/teams/initech/runs", json=spec)
    assert answer.status_code == 422
    assert [problem["field"] for problem in answer.json()["errors"]] == ["data.dataset"]


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
