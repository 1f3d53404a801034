"""Default deny: a route says who may call it, or the application does not start.

A policy is a dependency that is an instance of `Policy`. The check looks at routes, not at paths: a validator table
keyed by path fails open for every route that somebody forgets to add to it. Routes that take a body are `GuardedRoute`s:
who may not call them is told so before anything of the body is read.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

from fastapi import Depends, FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.dependencies.models import Dependant
from fastapi.params import Depends as DependsParam
from fastapi.routing import APIRoute, RouteContext, iter_route_contexts
from starlette.responses import Response

Answer = TypeVar("Answer")

LASTING_SECONDS = 5.0
"""For how long an answer holds. A body may take as long as who sends it likes, and rights end meanwhile."""


class Policy(ABC):
    """Parent of the callables that decide who may call a route. They refuse by raising an `AppError`."""

    @abstractmethod
    def ask(self, request: Request) -> object:
        """What the call does, of a request alone."""

    def once(self, request: Request, decide: Callable[[], Answer]) -> Answer:
        """What ``decide`` says to this request, ahead of the body and then to the route; asked again behind a slow body."""
        answers: dict[Policy, tuple[float, Answer]] = request.scope.setdefault("trainwright.answers", {})
        now = time.monotonic()
        if self not in answers or now - answers[self][0] > LASTING_SECONDS:
            answers[self] = (now, decide())
        return answers[self][1]


class GuardedRoute(APIRoute):
    """A route that asks its policies first: FastAPI reads and parses a body before it asks anybody."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        policies = list(_policies_in(self.dependant))
        if self.body_field is None:
            return handle

        async def ask_first(request: Request) -> Response:
            for policy in policies:
                await run_in_threadpool(policy.ask, request)
            return await handle(request)

        return ask_first


class Public(Policy):
    """Anybody may call the route."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        """Why this is safe."""

    def __call__(self) -> None:
        return None

    def ask(self, request: Request) -> None:
        return None


class RouteWithoutPolicyError(RuntimeError):
    """A programming error that stops the start: a route asks nobody, or asks after it has read a body."""


def public(reason: str) -> DependsParam:
    """For a route's ``dependencies``: anybody may call it, because of ``reason``."""
    guard: DependsParam = Depends(Public(reason))
    return guard


def assert_every_route_has_a_policy(app: FastAPI) -> None:
    """Refuse to start an application with an open door.

    Raises:
        RouteWithoutPolicyError: naming every route that no `Policy` guards, or every one that takes a body and is no
            `GuardedRoute`. Mounted applications and routes that are not FastAPI's own (static files, documentation pages)
            cannot carry a policy and are refused too.
    """
    routes = list(iter_route_contexts(app.routes))
    without = [_named(route) for route in routes if not policies_of(route)]
    if without:
        raise RouteWithoutPolicyError("These routes have no policy: " + "; ".join(without))
    late = [_named(route) for route in routes if _reads_first(route)]
    if late:
        raise RouteWithoutPolicyError("These routes read a body before they ask: " + "; ".join(late))


def policies_of(route: RouteContext) -> list[Policy]:
    """The policies that guard ``route``."""
    dependant = getattr(route, "dependant", None)
    return [] if dependant is None else list(_policies_in(dependant))


def _reads_first(route: RouteContext) -> bool:
    return getattr(route, "body_field", None) is not None and not isinstance(
        route.original_route, GuardedRoute
    )


def _named(route: RouteContext) -> str:
    return f"{sorted(route.methods or ['*'])} {route.path}"


def _policies_in(dependant: Dependant) -> Iterator[Policy]:
    if isinstance(dependant.call, Policy):
        yield dependant.call
    for inner in dependant.dependencies:
        yield from _policies_in(inner)
