"""Sessions of routes: which thread opens and closes them, and which routes may have one."""

import threading
from collections.abc import Iterator
from typing import Annotated

import pytest
from fastapi import Depends, FastAPI, Request
from fastapi.routing import APIRoute, APIRouter
from fastapi.testclient import TestClient

from trainwright_backend.core.errors import NotFound
from trainwright_backend.core.policy import RouteWithoutPolicyError, public, require_policy_on_every_route
from trainwright_backend.core.thread_context import ContextRoute, ThreadContext, without_thread

THREADS: list[tuple[str, int]] = []


def note(what: str) -> None:
    THREADS.append((what, threading.get_ident()))


@ThreadContext
def opened(request: Request) -> Iterator[str]:
    note("open")
    try:
        yield request.url.path
        note("commit")
    finally:
        note("close")


Opened = Annotated[str, Depends(opened)]


class Words:
    def __init__(self, words: str = "") -> None:
        note("parameters")
        self.words = words


def show(session: Opened, words: Annotated[Words, Depends(without_thread(Words))]) -> str:
    note("function")
    if words.words == "missing":
        raise NotFound("There is no such thing.")
    return session


def path_of(session: Opened) -> str:
    return session


def show_nested(path: Annotated[str, Depends(path_of)]) -> str:
    return path


async def show_without_thread(session: Opened) -> str:
    return session


def app_with(route_class: type[APIRoute]) -> FastAPI:
    router = APIRouter(route_class=route_class, dependencies=[public("a test")])
    router.add_api_route("/things", show)
    return app_of(router)


def app_of(router: APIRouter) -> FastAPI:
    app = FastAPI(openapi_url=None)  # pages without a policy
    app.include_router(router)
    return app


def test_the_thread_of_the_function_opens_commits_and_closes() -> None:
    THREADS.clear()
    response = TestClient(app_with(ContextRoute)).get("/things")
    assert response.json() == "/things"
    assert [what for what, _ in THREADS] == ["parameters", "open", "function", "commit", "close"]
    (event_loop, *others) = [thread for _, thread in THREADS]
    assert set(others) == {others[0]}
    assert others[0] != event_loop


def test_nothing_is_committed_after_an_error() -> None:
    THREADS.clear()
    with pytest.raises(NotFound):
        TestClient(app_with(ContextRoute)).get("/things", params={"words": "missing"})
    assert [what for what, _ in THREADS] == ["parameters", "open", "function", "close"]


def test_parameters_of_a_class_are_those_of_the_route() -> None:
    parameters = app_with(ContextRoute).openapi()["paths"]["/things"]["get"]["parameters"]
    assert [parameter["name"] for parameter in parameters] == ["words"]


def test_a_route_that_never_opens_its_session_is_refused() -> None:
    require_policy_on_every_route(app_with(ContextRoute))
    nested = APIRouter(route_class=ContextRoute, dependencies=[public("a test")])
    nested.add_api_route("/things", show_nested)
    unnamed = APIRouter(route_class=ContextRoute, dependencies=[public("a test"), Depends(opened)])
    unnamed.add_api_route("/things", lambda: "")
    wrong = [app_with(APIRoute), app_of(nested), app_of(unnamed)]
    for app in wrong:
        with pytest.raises(RouteWithoutPolicyError, match=r"never open their session.*/things"):
            require_policy_on_every_route(app)


def test_an_async_route_with_a_session_is_refused() -> None:
    with pytest.raises(TypeError, match="/things is async"):
        APIRouter(route_class=ContextRoute).add_api_route("/things", show_without_thread)
