import json
import threading
from collections.abc import Iterator
from datetime import date
from typing import Any, NamedTuple
from urllib.parse import parse_qs

import pytest
import uvicorn
from typer.testing import CliRunner, Result

from tests.backend.scripted_agent import Scene, scene
from tests.backend.scripted_agent import patient_settings as settings
from trainwright import cli
from trainwright_backend.core.db import now
from trainwright_backend.local.platform import bind_socket

__all__ = ["scene", "settings"]


class ReceivedRequest(NamedTuple):
    """A request as it arrived."""

    target: str
    """Method and path."""

    query: dict[str, list[str]]
    body: Any
    """JSON; None without it."""


class Served(NamedTuple):
    """The running application on the loopback interface."""

    url: str
    received: list[ReceivedRequest]

    def command(self, key: str, words: str, typed: str | None = None) -> Result:
        """The result of a command line, which gets ``typed`` when it prompts."""
        environment = {"TRAINWRIGHT_SERVER": self.url, "TRAINWRIGHT_KEY": key, "TRAINWRIGHT_TEAM": "acme"}
        return CliRunner().invoke(cli.app, words.split(), typed, environment | {"COLUMNS": "200"})


@pytest.fixture
def served(scene: Scene) -> Iterator[Served]:
    received: list[ReceivedRequest] = []

    async def listening(scope: Any, receive: Any, send: Any) -> None:
        """Read all of a request before the application, which refuses some requests without reading them."""
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        target = f"{scope['method']} {scope['path']}"
        query = parse_qs(scope["query_string"].decode())
        is_json = dict(scope["headers"]).get(b"content-type", b"").startswith(b"application/json")
        received.append(ReceivedRequest(target, query, json.loads(body) if body and is_json else None))
        replayed = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> Any:
            return replayed.pop() if replayed else await receive()

        await scene.site.app(scope, again, send)

    socket = bind_socket("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(listening, lifespan="off", log_level="error"))
    thread = threading.Thread(target=server.run, args=([socket],))
    thread.start()
    yield Served(f"http://127.0.0.1:{socket.getsockname()[1]}", received)
    server.should_exit = True
    thread.join()
    socket.close()


def key_of(person: Any) -> str:
    """The API key that a person's client sends."""
    secret: str = person.headers["Authorization"].removeprefix("Bearer ")
    return secret


@pytest.fixture
def key(scene: Scene) -> str:
    """The site admin's API key."""
    return key_of(scene.site.admin)


@pytest.fixture
def in_the_middle_of_a_month(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two days before now are in this month too, also at its start."""
    if now().day <= 2:
        monkeypatch.setattr("trainwright_backend.runs.limit_usage.month_start", lambda day: date(2000, 1, 1))
