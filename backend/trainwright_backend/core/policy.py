"""Deny by default: every route declares who may call it, or the application does not start.

A policy is a dependency that is an instance of `Policy`. The check inspects routes, not paths: with a table keyed by
path, every route missing from the table would be open. Routes with a body are `GuardedRoute`s, which refuse callers
before they read anything of the body, and bound how many requests run at once. The same check finds routes that would never open
their session (`thread_context`).
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator
from inspect import iscoroutinefunction
from typing import Any, ClassVar, TypeVar

from fastapi import Depends, FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.dependencies.models import Dependant
from fastapi.params import Depends as DependsParam
from fastapi.routing import RouteContext, iter_route_contexts
from starlette.responses import Response

from trainwright_backend.core.concurrency import ConcurrencyLimit, RequestKind
from trainwright_backend.core.errors import AppError
from trainwright_backend.core.thread_context import ContextRoute, ThreadContext, has_context

Decision = TypeVar("Decision")

CACHE_SECONDS = 5.0
"""How long a decision is cached. A slow body can take any time, in which rights may be revoked."""

_DECISIONS_KEY = "trainwright.decisions"
"""Key in the scope of a request: the decisions of its policies."""

BODY_KEY = "trainwright.body"
"""The body of a request, in its scope, for the audit log."""


class Policy(ABC):
    """Base class of the callables that decide who may call a route. They refuse by raising an `AppError`."""

    @abstractmethod
    def check(self, request: Request) -> object:
        """The same decision from the request alone. It may block: call it in a thread."""

    async def decision(self, request: Request, decide: Callable[[], Decision]) -> Decision:
        """As `cached`, for the call of the route. It needs a thread only if the check before the body has not decided."""
        cached = self._cached(request)
        if cached is not None:
            decided: Decision = cached[0]
            return decided
        return await run_in_threadpool(self.cached, request, decide)

    def cached(self, request: Request, decide: Callable[[], Decision]) -> Decision:
        """Decide once for the check before the body and the call of the route, but again after a slow body."""
        cached = self._cached(request)
        decided: Decision = decide() if cached is None else cached[0]
        if cached is None:
            request.scope.setdefault(_DECISIONS_KEY, {})[self] = (decided, time.monotonic())
        return decided

    def _cached(self, request: Request) -> tuple[Any, float] | None:
        """The decision and when it was made, if that was not long ago."""
        found: tuple[Any, float] | None = request.scope.get(_DECISIONS_KEY, {}).get(self)
        return found if found is not None and time.monotonic() - found[1] <= CACHE_SECONDS else None


class GuardedRoute(ContextRoute):
    """A route that checks its policies before it reads the body, and runs within the limit of its kind of requests.

    A slow body occupies no place: the request waits for a place for the check, and for another one when its body has
    arrived. Async routes, which read the body themselves, need no place after the check.
    """

    kind: ClassVar[RequestKind] = RequestKind.PEOPLE
    body_seconds: ClassVar[float] = 60.0
    """Within this time, a body must arrive."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        policies = [policy for policy in _policies_in(self.dependant) if not isinstance(policy, Public)]
        reads_body, is_async = self.body_field is not None, iscoroutinefunction(self.endpoint)

        async def guarded(request: Request) -> Response:
            limit: ConcurrencyLimit = request.app.state.limits[self.kind]
            address = request.client.host if request.client else ""
            if reads_body and policies:
                async with limit.place(address):
                    for policy in policies:
                        await run_in_threadpool(policy.check, request)
            if is_async:
                return await handle(request)
            if reads_body:
                await self._receive_body(request)
            async with limit.place(address):
                return await handle(request)

        return guarded

    async def _receive_body(self, request: Request) -> None:
        try:
            async with asyncio.timeout(self.body_seconds):
                request.scope[BODY_KEY] = await request.body()
        except TimeoutError:
            detail = f"The body of this request did not arrive within {self.body_seconds:g} s. Send it again."
            raise AppError("slow_body", 408, detail, headers={"Connection": "close"}) from None


class AgentRoute(GuardedRoute):
    """A route for nodes, which a flood of other requests does not delay."""

    kind = RequestKind.AGENTS
    body_seconds = 600.0


class SignInRoute(GuardedRoute):
    """A route that hashes a password."""

    kind = RequestKind.SIGN_INS


class ProviderRoute(GuardedRoute):
    """A route that waits for the identity provider."""

    kind = RequestKind.PROVIDER


class Public(Policy):
    """Anyone may call the route."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        """Why this is safe."""

    async def __call__(self) -> None:
        return None

    def check(self, request: Request) -> None:
        return None


class RouteWithoutPolicyError(RuntimeError):
    """A programming error: a route has no policy, checks it after reading the body, or never opens its session."""


def public(reason: str) -> DependsParam:
    """For a route's ``dependencies``: anyone may call it, for the stated ``reason``."""
    guard: DependsParam = Depends(Public(reason))
    return guard


def require_policy_on_every_route(app: FastAPI) -> None:
    """Refuse to start an application with an unguarded route.

    Raises:
        RouteWithoutPolicyError: names every route without a `Policy`, or every route with a body that is not a
            `GuardedRoute`, or every route that never opens its session. Mounted applications and other
            routes that are not FastAPI's own (static files, documentation pages) cannot have a policy and are refused too.
    """
    routes = list(iter_route_contexts(app.routes))
    without = [_describe(route) for route in routes if not policies_of(route)]
    if without:
        raise RouteWithoutPolicyError("These routes have no policy: " + "; ".join(without))
    late = [_describe(route) for route in routes if _reads_body_first(route)]
    if late:
        raise RouteWithoutPolicyError(
            "These routes read a body before they check their policy: " + "; ".join(late)
        )
    without_session = [_describe(route) for route in routes if not _opens_sessions(route)]
    if without_session:
        raise RouteWithoutPolicyError("These routes never open their session: " + "; ".join(without_session))


def policies_of(route: RouteContext) -> list[Policy]:
    """The policies that guard ``route``."""
    dependant = getattr(route, "dependant", None)
    return [] if dependant is None else list(_policies_in(dependant))


def _reads_body_first(route: RouteContext) -> bool:
    return getattr(route, "body_field", None) is not None and not isinstance(
        route.original_route, GuardedRoute
    )


def _opens_sessions(route: RouteContext) -> bool:
    """Whether the function of the route gets and enters each context among its dependencies."""
    dependencies = getattr(getattr(route, "dependant", None), "dependencies", [])
    if any(
        has_context(dependency) for dependency in dependencies
    ):  # of a dependency, which would not enter it
        return False
    own = [dependency for dependency in dependencies if isinstance(dependency.call, ThreadContext)]
    return not own or (isinstance(route.original_route, ContextRoute) and all(one.name for one in own))


def _describe(route: RouteContext) -> str:
    return f"{sorted(route.methods or ['*'])} {route.path}"


def _policies_in(dependant: Dependant) -> Iterator[Policy]:
    if isinstance(dependant.call, Policy):
        yield dependant.call
    for inner in dependant.dependencies:
        yield from _policies_in(inner)
