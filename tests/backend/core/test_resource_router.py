"""Routers try their routes only for paths that one of them can have, and every route is found."""

import re

import pytest
from fastapi import APIRouter, FastAPI
from fastapi.routing import iter_route_contexts
from starlette.routing import Match

from trainwright_backend.api.routes import api_router
from trainwright_backend.core.resource_router import ResourceRouter


def scope_of(method: str, path: str) -> dict[str, object]:
    return {"type": "http", "method": method, "path": path, "root_path": "", "headers": []}


def test_every_route_is_found() -> None:
    app = FastAPI()
    app.include_router(api_router())
    contexts = [context for context in iter_route_contexts(app.routes) if context.path.startswith("/api/")]
    assert len(contexts) > 100
    for context in contexts:
        path = re.sub(r"\{[^}]+\}", "a1", context.path)
        for method in context.methods or ():
            found = [route.matches(scope_of(method, path))[0] for route in app.routes]
            assert Match.FULL in found, f"{method} {path}"


@pytest.mark.parametrize(
    ("path", "tried"),
    [
        ("/api/v1/teams/lab/runs", True),
        ("/api/v1/teams/lab/runs/run_1/files/a/b/c", True),
        ("/api/v1/teams/lab/runs/run_1/plan", True),
        ("/api/v1/teams/lab/runs/", True),
        ("/api/v1/teams/lab/runs/run_1/logs", False),
        ("/api/v1/teams/lab/datasets", False),
        ("/api/v1/teams", False),
        ("/api/v1/nodes", False),
        ("/", False),
    ],
)
def test_routes_are_tried_for_their_paths_only(
    path: str, tried: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    router = ResourceRouter(prefix="/teams/{team}/runs")
    nested = ResourceRouter(prefix="/{run}")
    for owner, addresses in ((router, ["", "/{run}/plan"]), (nested, ["/files/{name:path}"])):
        for address in addresses:
            owner.get(address)(lambda: None)
    router.include_router(nested)
    asked: list[str] = []
    monkeypatch.setattr(
        APIRouter, "matches", lambda _, scope: (asked.append(scope["path"]), (Match.NONE, {}))[1]
    )
    router.matches(scope_of("GET", path))
    assert bool(asked) is tried
