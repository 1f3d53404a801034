"""Routes can be found by their address: the path of a route contains the name of its module in `api`, with hyphens."""

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute, iter_route_contexts
from pydantic import SecretStr

from trainwright_backend.core.settings import MIN_SECRET_LENGTH, Settings
from trainwright_backend.main import create_app

PACKAGE = "trainwright_backend.api"
OTHER_ADDRESSES = {
    "monitoring": {"/metrics"},
    "nodes": {"/api/v1/join-tokens"},
    "site": {"/api/v1/health", "/api/v1/spec", "/api/v1/series", "/api/v1/openapi.json", "/{path:page}"},
}
"""Addresses, by module, that do not contain the module's name."""


@pytest.fixture(scope="module")
def app() -> FastAPI:
    return create_app(Settings(secret_key=SecretStr("-" * MIN_SECRET_LENGTH), control_loop=False))


def test_the_path_of_each_route_names_its_module(app: FastAPI) -> None:
    assert misplaced(app) == []


def test_a_route_in_another_module_is_found(app: FastAPI) -> None:
    planted = FastAPI(openapi_url=None)
    planted.include_router(app.router)
    planted.get("/api/v1/planted")(planted_route)
    assert misplaced(planted) == [f"/api/v1/planted: {__name__}"]


def planted_route() -> None:
    """A route outside `api`."""


def misplaced(app: FastAPI) -> list[str]:
    """Path and module of each route whose module's name is not a part of its path."""
    found = [
        (context.path, context.original_route.endpoint.__module__)
        for context in iter_route_contexts(app.routes)
        if isinstance(context.original_route, APIRoute)
    ]
    assert found
    return [f"{path}: {module}" for path, module in found if not is_named(path, module)]


def is_named(path: str, module: str) -> bool:
    package, _, name = module.rpartition(".")
    return package == PACKAGE and (
        name.replace("_", "-") in path.split("/") or path in OTHER_ADDRESSES.get(name, ())
    )
