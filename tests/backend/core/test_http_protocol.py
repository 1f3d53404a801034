"""Limits for the head of a request and for connections, tested over real connections to the server of `serve`."""

import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import uvicorn
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from tests.live import eventually
from trainwright_backend.cli import SERVER_OPTIONS
from trainwright_backend.core import http_protocol
from trainwright_backend.core.http_protocol import HttpProtocol
from trainwright_backend.local.platform import bind_socket

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n"


SLOW = b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"
"""Answered when the server ends."""


LARGE_BYTES = 50_000_000
"""More than a connection's buffers can hold."""


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["path"] == "/large":
        return await PlainTextResponse(b"x" * LARGE_BYTES)(scope, receive, send)
    if scope["path"] == "/slow":
        await receive()  # the body
        await receive()  # the end of the connection
    await PlainTextResponse("hello")(scope, receive, send)


@pytest.fixture
def server() -> Iterator[tuple[str, int]]:
    listener = bind_socket("127.0.0.1", 0)
    running = uvicorn.Server(uvicorn.Config(application, lifespan="off", **SERVER_OPTIONS))
    thread = threading.Thread(target=running.run, args=([listener],))
    thread.start()
    yield listener.getsockname()
    running.should_exit = True
    thread.join()


@pytest.fixture
def connection(server: tuple[str, int]) -> Iterator[socket.socket]:
    with socket.create_connection(server, timeout=30) as connected:
        yield connected


def read_to_end(connection: socket.socket) -> bytes:
    found = b""
    try:
        while data := connection.recv(65_536):
            found += data
    except ConnectionResetError:
        pass  # it was closed before it read everything that was sent
    return found


def test_a_header_that_never_ends_is_refused(connection: socket.socket) -> None:
    connection.sendall(REQUEST + b"X: ")
    sent = 0
    try:
        while sent < 16 * http_protocol.HEAD_BYTES:
            sent += connection.send(b"x" * 65_536)
            time.sleep(0.01)
    except OSError:
        pass
    assert sent < 16 * http_protocol.HEAD_BYTES, "the server stopped reading"
    assert read_to_end(connection).split(b"\r\n")[0] in (b"", b"HTTP/1.1 431 Request Header Fields Too Large")


def test_a_head_that_is_slow_is_refused_and_a_silent_connection_closed(
    server: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_SECONDS", 0.3)
    with socket.create_connection(server, timeout=10) as half, socket.create_connection(server, 10) as silent:
        half.sendall(REQUEST)
        assert read_to_end(half).startswith(b"HTTP/1.1 408 ")
        assert read_to_end(silent) == b""


def test_several_requests_on_one_connection_are_answered(
    connection: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_BYTES", 4 * len(REQUEST))
    for _ in range(8):  # together more than the limit of one head
        connection.sendall(REQUEST + b"\r\n")
        response = b""
        while not response.endswith(b"hello"):
            received = connection.recv(65_536)
            assert received, response
            response += received
        assert response.startswith(b"HTTP/1.1 200 ")


def connect(server: tuple[str, int], count: int, first: bytes, opened: ExitStack) -> list[socket.socket]:
    """Open connections, and send the ``first`` bytes on each."""
    connections = [opened.enter_context(socket.create_connection(server, timeout=10)) for _ in range(count)]
    for connection in connections:
        connection.sendall(first)
    return connections


def test_half_open_connections_do_not_block_others(
    server: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_protocol, "MAX_CONNECTIONS", 5)
    with ExitStack() as opened:
        half_open = connect(server, 8, REQUEST, opened)
        [connection] = connect(server, 1, REQUEST + b"Connection: close\r\n\r\n", opened)
        assert read_to_end(connection).startswith(b"HTTP/1.1 200 ")
        assert [read_to_end(closed) for closed in half_open[:4]] == [b""] * 4, "the longest idle ones"


def test_an_idle_connection_is_closed_for_others_but_a_request_is_not(
    server: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_protocol, "MAX_CONNECTIONS", 5)
    with ExitStack() as opened:
        [kept] = connect(server, 1, REQUEST + b"\r\n", opened)
        response = b""
        while not response.endswith(b"hello"):
            response += kept.recv(65_536)
        assert response.startswith(b"HTTP/1.1 200 ")
        for _ in range(5):  # one after the other, so that each has its request before the next connects
            [busy] = connect(server, 1, SLOW, opened)
            time.sleep(0.3)
        assert read_to_end(kept) == b""
        [refused] = connect(server, 1, REQUEST + b"\r\n", opened)
        assert read_to_end(refused).startswith(b"HTTP/1.1 503 ")
        busy.close()


@pytest.mark.parametrize(
    "first",
    [
        b"POST /slow HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf",
        b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
    ids=["sends no more", "reads nothing"],
)
def test_a_stalled_client_is_replaced(
    server: tuple[str, int], monkeypatch: pytest.MonkeyPatch, first: bytes
) -> None:
    monkeypatch.setattr(http_protocol, "MAX_CONNECTIONS", 5)
    with ExitStack() as opened:
        connect(server, 5, first, opened)
        eventually(lambda: len(HttpProtocol.stalled_since) == 5, "all wait for their clients", 30)
        [refused] = connect(server, 1, REQUEST + b"\r\n", opened)
        assert read_to_end(refused).startswith(b"HTTP/1.1 503 "), "they may only be slow"
        monkeypatch.setattr(http_protocol, "STALL_SECONDS", 0.0)
        [served] = connect(server, 1, REQUEST + b"Connection: close\r\n\r\n", opened)
        assert read_to_end(served).startswith(b"HTTP/1.1 200 ")
        eventually(lambda: len(HttpProtocol.stalled_since) == 4, "one was closed", 30)


def test_connections_use_at_most_half_of_a_process_file_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, soft), hard))
        assert http_protocol.max_connections() == min(512, soft) // 2
        http_protocol.raise_file_limit()
        raised, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert raised == min(http_protocol.WANTED_FILES, hard)
        assert http_protocol.max_connections() == min(http_protocol.MAX_CONNECTIONS, raised // 2)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
