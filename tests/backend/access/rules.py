"""Who may call each route: the rules, the callers that they tell apart, and what each caller gets.

`EXPECTED` is written by hand, not derived from the policies that it checks. A new route without a line fails a test.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from fastapi.routing import RouteContext, iter_route_contexts
from fastapi.testclient import TestClient

from trainwright.contracts.api.people import KeyScope, Role
from trainwright_backend.core.ids import new_id, public_id

T = "/api/v1/teams/{team}"
ROLES = {"viewer": Role.VIEWER, "editor": Role.EDITOR, "owner": Role.OWNER}
"""The rules of a team's routes, each with the least role."""

ROLE_ORDER = list(ROLES.values())
SCOPE_ORDER = [KeyScope.READ, KeyScope.SUBMIT, KeyScope.MANAGE]

EXPECTED = {
    "GET /{path:page}": "public",
    "HEAD /{path:page}": "public",
    "GET /metrics": "metrics token",
    "GET /api/v1/health": "public",
    "GET /api/v1/openapi.json": "public",
    "GET /api/v1/spec": "public",
    "GET /api/v1/series": "public",
    "GET /api/v1/blobs/{signed}": "signed link",
    "PUT /api/v1/blobs/{signed}": "signed link",
    "POST /api/v1/auth/sign-in": "public",
    "POST /api/v1/auth/link": "public",
    "POST /api/v1/auth/mailed-link": "public",
    "GET /api/v1/auth/link/{token}": "public",
    "GET /api/v1/auth/oidc": "public",
    "POST /api/v1/auth/oidc/start": "public",
    "POST /api/v1/auth/oidc/finish": "public",
    "POST /api/v1/auth/device": "public",
    "POST /api/v1/auth/device/key": "public",
    "GET /api/v1/me/device/{user_code}": "signed in",
    "POST /api/v1/me/device": "person",
    "GET /api/v1/me": "signed in",
    "PATCH /api/v1/me": "person",
    "POST /api/v1/me/password": "person",
    "POST /api/v1/me/delete": "person",
    "GET /api/v1/me/keys": "signed in",
    "POST /api/v1/me/keys": "person",
    "DELETE /api/v1/me/keys/{key}": "person",
    "GET /api/v1/me/oidc": "signed in",
    "POST /api/v1/me/oidc": "person",
    "DELETE /api/v1/me/oidc/{identity}": "person",
    "GET /api/v1/me/sessions": "signed in",
    "DELETE /api/v1/me/sessions/{session_id}": "person",
    "GET /api/v1/me/notices": "signed in",
    "POST /api/v1/me/notices/read": "person",
    "GET /api/v1/me/notices/settings": "signed in",
    "PUT /api/v1/me/notices/settings": "person",
    "GET /api/v1/teams": "signed in",
    "POST /api/v1/teams": "site admin",
    f"GET {T}": "viewer",
    f"PATCH {T}": "owner",
    f"DELETE {T}": "owner",
    f"GET {T}/members": "viewer",
    f"PATCH {T}/members/{{member}}": "owner",
    f"DELETE {T}/members/{{member}}": "owner",
    f"GET {T}/service-accounts": "owner",
    f"POST {T}/service-accounts": "owner",
    f"DELETE {T}/service-accounts/{{account}}": "owner",
    f"POST {T}/service-accounts/{{account}}/keys": "owner",
    f"DELETE {T}/service-accounts/{{account}}/keys/{{key}}": "owner",
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
    "GET /api/v1/nodes/{node}/load": "site admin",
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
    # Last: afterwards the caller is no longer a member, has no key, or is signed out.
    f"DELETE {T}/members/me": "viewer",
    "DELETE /api/v1/me/keys/current": "signed in",
    "POST /api/v1/auth/sign-out": "public",
}

Ids = Mapping[str, str]
"""Values of the parameters in addresses."""

TEAM = "acme"
UNKNOWN_IDS: Ids = {
    "team": TEAM,
    "dataset": public_id("ds", new_id()),
    "upload": public_id("up", new_id()),
    "preparation": public_id("prep", new_id()),
    "tokenizer": public_id("tok", new_id()),
    "run": public_id("run", new_id()),
    "checkpoint": public_id("ckpt", new_id()),
    "recipe": public_id("recipe", new_id()),
    "member": public_id("user", new_id()),
    "account": public_id("user", new_id()),
    "view": public_id("view", new_id()),
    "invitation": public_id("invite", new_id()),
    "node": public_id("node", new_id()),
    "webhook": public_id("hook", new_id()),
    "key": public_id("key", new_id()),
    "identity": public_id("identity", new_id()),
    "user_code": "XXXX-XXXX",
    "session_id": "session_" + "0" * 24,
    "number": "1",
    "attempt": "1",
    "file": "rank-0.log",
    "device": "cpu",
    "token": "unknown",
    "signed": "unknown",
    "path": "runs",
}
SECOND_RUN = public_id("run", new_id())
"""Unknown too, for a body that names two runs."""


@dataclass(frozen=True)
class Caller:
    """A client, and the rights that its credentials give in the team of the matrix."""

    kind: str
    client: TestClient
    is_person: bool = True
    is_node: bool = False
    role: Role | None = None
    is_site_admin: bool = False
    is_service: bool = False
    scope: KeyScope = KeyScope.MANAGE


@dataclass(frozen=True)
class Refusal:
    """How a request is refused; the code is empty if the response has no body."""

    status: int
    code: str


NOT_SIGNED_IN = Refusal(401, "not_signed_in")
NO_SUCH_TEAM = Refusal(404, "no_such_team")


def routes(app: FastAPI) -> Iterator[tuple[str, RouteContext]]:
    """The application's routes by method and path, in the order of `EXPECTED`."""
    found = {
        f"{method} {context.path}": context
        for context in iter_route_contexts(app.routes)
        for method in context.methods or ()
    }
    unexpected, missing = found.keys() - EXPECTED.keys(), EXPECTED.keys() - found.keys()
    assert not unexpected and not missing, f"without a rule: {unexpected}; without a route: {missing}"
    for route in EXPECTED:
        yield route, found[route]


def expected_refusal(caller: Caller, route: str) -> Refusal | None:
    """How the caller is refused; None if the rule admits them."""
    rule = EXPECTED[route]
    if rule == "public":
        return None
    if rule == "signed link":
        return Refusal(403, "bad_link")
    if rule == "metrics token":  # not set in these tests, so nobody has it
        return Refusal(404, "not_found")
    if rule == "node":
        return None if caller.is_node else NOT_SIGNED_IN
    if not caller.is_person:
        return NOT_SIGNED_IN
    if rule in ROLES:
        if caller.role is None:
            return NO_SUCH_TEAM
        if ROLE_ORDER.index(caller.role) < ROLE_ORDER.index(ROLES[rule]):
            return Refusal(403, "role_too_low")
    if SCOPE_ORDER.index(caller.scope) < SCOPE_ORDER.index(least_scope(route)):
        return Refusal(403, "scope_too_low")
    if caller.is_service and (rule == "person" or (rule == "site admin" and not route.startswith("GET "))):
        return Refusal(403, "service_account")
    if rule == "site admin" and not caller.is_site_admin:
        return Refusal(403, "site_admin_only")
    return None


def least_scope(route: str) -> KeyScope:
    """The scope that an API key needs, as documented."""
    method, _, path = route.partition(" ")
    rule = EXPECTED[route]
    if rule in ROLES and not path.endswith("/members/me"):
        return SCOPE_ORDER[ROLE_ORDER.index(ROLES[rule])]
    if path.endswith("/keys/current"):
        return KeyScope.READ
    return KeyScope.READ if method == "GET" and not path.startswith("/api/v1/audit") else KeyScope.MANAGE


def call(client: TestClient, route: str, ids: Ids) -> Any:
    """The response to a request that is valid except for its ids, so that only rights and ids decide."""
    method, _, path = route.partition(" ")
    address = path.replace("{path:page}", "runs").format_map(ids)
    return client.request(method, address, **body_for(route, ids))


def body_for(route: str, ids: Ids) -> dict[str, Any]:
    """The query or body that a route needs."""
    method, _, path = route.partition(" ")
    if path.endswith("/search"):
        return {"params": {"q": "word"}}
    if method not in ("POST", "PUT", "PATCH") or "blobs" in path or "uploads/{upload}" in path:
        return {}
    bodies: dict[str, dict[str, Any]] = {
        "POST clone": {"name": "a copy"},
        "POST fork": {"name": "a fork"},
        "POST move": {"node": "node-a"},
        "PUT layout": {"parallelism": {}},
        "PUT order": {"runs": [ids["run"], SECOND_RUN]},
        "PATCH {checkpoint}": {"pinned": True},
        "POST bulk": {"action": "delete", "runs": [ids["run"]]},
        "POST datasets": {"name": "theirs", "uploads": [ids["upload"]]},
        "POST tokenizers": {"name": "theirs", "upload": ids["upload"]},
        "POST preview": {"uploads": [ids["upload"]]},
    }
    return {"json": bodies.get(f"{method} {path.rpartition('/')[2]}", {})}


def surprises(callers: Iterable[Caller], route: str, ids: Ids = UNKNOWN_IDS) -> Iterator[str]:
    """The responses of one route that are not what its rule says, one sentence each."""
    for caller in callers:
        response = call(caller.client, route, ids)
        expected = expected_refusal(caller, route)
        fits = _is_admitted(response) if expected is None else is_refused(response, expected)
        if not fits:
            yield (
                f"{caller.kind}: {route} is for {EXPECTED[route]}, so {expected or 'no refusal'} is expected, "
                f"but the response is {response.status_code} {response.text[:300]}"
            )


def _is_admitted(response: Any) -> bool:
    return (
        response.status_code not in (401, 403) and response.status_code < 500 and not _names_no_team(response)
    )


def is_refused(response: Any, expected: Refusal) -> bool:
    """Whether the response is this refusal."""
    if expected == NO_SUCH_TEAM:
        return response.status_code == 404 and (not response.content or _names_no_team(response))
    if response.status_code != expected.status:
        return False
    return not response.content or bool(response.json()["code"] == expected.code)


def _names_no_team(response: Any) -> bool:
    return "There is no team" in response.text
