"""Contexts that a route's function enters in its own thread, such as a database session.

FastAPI runs each function that is not async in a thread of a pool: a policy, the constructor of a class of parameters, the route's
function, and a generator dependency twice, to enter and to leave it. On a busy server each change of threads takes as long as a
short query. So sessions are entered and left by the route's function, and what needs no thread is async.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from inspect import iscoroutinefunction, signature
from typing import Any, Generic, TypeVar

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

Value = TypeVar("Value")


@dataclass(frozen=True)
class PendingContext(Generic[Value]):
    """The argument of a route's function until it enters it."""

    context: AbstractContextManager[Value]


class ThreadContext(Generic[Value]):
    """A dependency of a `ContextRoute`: what the generator ``open_context`` yields."""

    def __init__(self, open_context: Callable[[Request], Iterator[Value]]) -> None:
        self.open = contextmanager(open_context)

    async def __call__(self, request: Request) -> PendingContext[Value]:
        return PendingContext(self.open(request))


class ContextRoute(APIRoute):
    """A route whose function enters the contexts among its arguments, and leaves them before the response is sent.

    Raises:
        TypeError: the function is async, and would use a session in the event loop.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        is_async = iscoroutinefunction(endpoint)
        super().__init__(path, endpoint if is_async else _with_contexts(endpoint), **options)
        if is_async and has_context(self.dependant):
            raise TypeError(f"{path} is async, so it cannot have a session")


def has_context(dependant: Dependant) -> bool:
    """Whether a context is among the dependencies of a route or of a dependency."""
    return any(
        isinstance(inner.call, ThreadContext) or has_context(inner) for inner in dependant.dependencies
    )


def _with_contexts(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def enter(**given: Any) -> Any:
        with ExitStack() as stack:
            entered = {
                name: stack.enter_context(value.context) if isinstance(value, PendingContext) else value
                for name, value in given.items()
            }
            return function(**entered)

    return enter


def without_thread(build: Callable[..., Value]) -> Callable[..., Awaitable[Value]]:
    """An async dependency that calls ``build``, which must not block."""

    async def build_now(**given: Any) -> Value:
        return build(**given)

    build_now.__signature__ = signature(build)  # type: ignore[attr-defined]
    return build_now
