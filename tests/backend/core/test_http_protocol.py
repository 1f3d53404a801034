"""Limits for the head of a request, over real connections to the server of `serve`."""

import socket
import threading
import time
from collections.abc import Iterator

import pytest
import uvicorn
from starlette.responses import PlainTextResponse

from trainwright_backend.cli import SERVER_OPTIONS
from trainwright_backend.core import http_protocol
from trainwright_backend.local.platform import bind_socket

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n"


@pytest.fixture
def server() -> Iterator[tuple[str, int]]:
    listener = bind_socket("127.0.0.1", 0)
    running = uvicorn.Server(uvicorn.Config(PlainTextResponse("hello"), lifespan="off", **SERVER_OPTIONS))
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
        answer = b""
        while not answer.endswith(b"hello"):
            received = connection.recv(65_536)
            assert received, answer
            answer += received
        assert answer.startswith(b"HTTP/1.1 200 ")
