"""Default deny: a route says who may call it, or the application does not start.

A policy is a dependency that is an instance of `Policy`. The check looks at routes, not at paths: a validator table
keyed by path fails open for every route that somebody forgets to add to it.
"""

from collections.abc import Iterator

from fastapi import Depends, FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.params import Depends as DependsParam
from fastapi.routing import RouteContext, iter_route_contexts


class Policy:
    """Parent of the callables that decide who may call a route. They refuse by raising an `AppError`."""


class Public(Policy):
    """Anybody may call the route."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        """Why this is safe."""

    def __call__(self) -> None:
        return None


class RouteWithoutPolicyError(RuntimeError):
    """A programming error that stops the start."""


def public(reason: str) -> DependsParam:
    """For a route's ``dependencies``: anybody may call it, because of ``reason``."""
    guard: DependsParam = Depends(Public(reason))
    return guard


def assert_every_route_has_a_policy(app: FastAPI) -> None:
    """Refuse to start an application with an open door.

    Raises:
        RouteWithoutPolicyError: naming every route that no `Policy` guards. Mounted applications and routes that are not
            FastAPI's own (static files, documentation pages) cannot carry one and are refused too.
    """
    without = [
        f"{sorted(route.methods or ['*'])} {route.path}"
        for route in iter_route_contexts(app.routes)
        if not policies_of(route)
    ]
    if without:
        raise RouteWithoutPolicyError("These routes have no policy: " + "; ".join(without))


def policies_of(route: RouteContext) -> list[Policy]:
    """The policies that guard ``route``."""
    dependant = getattr(route, "dependant", None)
    return [] if dependant is None else list(_policies_in(dependant))


def _policies_in(dependant: Dependant) -> Iterator[Policy]:
    if isinstance(dependant.call, Policy):
        yield dependant.call
    for inner in dependant.dependencies:
        yield from _policies_in(inner)
