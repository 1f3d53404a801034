"""Replies as exception types: refusals by the API, and replies of other servers."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from trainwright_agent.client import (
    ApiError,
    Backoff,
    ClaimRefusedError,
    Client,
    RefusedError,
    RunDeletedError,
    StaleFenceError,
    UnreachableError,
    WrongOffsetError,
)

Serve = Callable[[int, bytes], Client]


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[HTTPServer] = []

    def start(status: int, content: bytes) -> Client:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(status)
                self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        server = HTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return Client(f"http://127.0.0.1:{server.server_address[1]}", "token")

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (409, {"code": "stale_fence"}, StaleFenceError),
        (409, {"code": "claim_refused"}, ClaimRefusedError),
        (409, {"code": "wrong_offset", "offset": 7}, WrongOffsetError),
        (404, {"code": "not_found"}, RunDeletedError),
        (422, {"code": "invalid"}, RefusedError),
        (404, "<html>nginx</html>", UnreachableError),
        (404, {"detail": "Not Found"}, UnreachableError),
        (409, "[]", UnreachableError),
        (500, {"code": "internal"}, UnreachableError),
        (503, {"code": "busy"}, UnreachableError),
        (429, {"code": "slow_down"}, UnreachableError),
        (302, "", UnreachableError),
        (200, "<html>a captive portal</html>", UnreachableError),
        (200, {"claim_id": "x"}, UnreachableError),
    ],
)
def test_each_reply_raises_its_exception_type(
    serve: Serve, status: int, body: object, kind: type[ApiError]
) -> None:
    client = serve(status, (body if isinstance(body, str) else json.dumps(body)).encode())
    with pytest.raises(ApiError) as caught:
        client.claim("run_1", "0" * 32)
    assert type(caught.value) is kind
    if isinstance(caught.value, WrongOffsetError):
        assert caught.value.offset == 7


def test_a_closed_port_is_unreachable() -> None:
    with pytest.raises(UnreachableError):
        Client("http://127.0.0.1:1", "token").claim("run_1", "0" * 32)


def test_waiting_times_grow_to_a_limit_until_reset() -> None:
    backoff = Backoff(1.0, 4.0)
    bounds = [(0.5, 1.0), (1.0, 2.0), (2.0, 4.0), (2.0, 4.0)]
    for low, high in bounds:
        assert low <= backoff.next_seconds() <= high
    backoff.reset()
    assert backoff.next_seconds() <= 1.0


def test_a_download_follows_the_redirect_to_a_bucket_and_sends_no_token() -> None:
    asked: list[tuple[str, str | None]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers["Authorization"]))
            is_link = self.path.startswith("/api/")
            content = b"" if is_link else b"the object"
            self.send_response(307 if is_link else 200)
            if is_link:
                self.send_header("Location", f"http://127.0.0.1:{server.server_port}/bucket/key?signature=x")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    received: list[bytes] = []
    Client(f"http://127.0.0.1:{server.server_port}", "secret").get("/api/v1/blobs/link", received.append)
    server.shutdown()
    server.server_close()
    assert b"".join(received) == b"the object"
    assert asked == [("/api/v1/blobs/link", None), ("/bucket/key?signature=x", None)]
