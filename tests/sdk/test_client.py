"""Broken connections: both clients retry reads, detect damage, and rename only complete files.

The synchronous one is generated from the asynchronous one.
"""

import asyncio
import hashlib
import inspect
import json
import re
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from trainwright.async_client import AsyncClient, AsyncTeamClient
from trainwright.cli import app
from trainwright.client import Client, TeamClient
from trainwright.contracts.api.runs import Run, RunSummary
from trainwright.contracts.data_spec import DataSpec
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.run_state import RunState
from trainwright.transport.errors import ApiError, DigestMismatchError, UnexpectedResponseError
from trainwright.transport.partial_file import PartialFile
from trainwright.transport.responses import RETRY_SECONDS
from trainwright.transport.tls import tls_context

CONTENT = b"weights " * 1_000
FILE = {"name": "model.safetensors", "bytes": len(CONTENT), "digest": hashlib.sha256(CONTENT).hexdigest()}


class Scripted(BaseHTTPRequestHandler):
    """Replies from a list of replies per path; the last one is repeated."""

    responses: dict[str, list[tuple[int, bytes]]]
    asked: list[str]
    ranges: list[str | None]
    """The Range header of each request."""
    keys: list[str | None]
    """The Idempotency-Key of each request."""

    retry_after: str | None
    location: str | None = None

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.do_GET()

    def do_DELETE(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.asked.append(path)
        self.ranges.append(self.headers["Range"])
        self.keys.append(self.headers["Idempotency-Key"])
        script = self.responses[path]
        status, body = script.pop(0) if len(script) > 1 else script[0]
        if status == 0:  # drop the connection in the middle of the response
            self.send_response(206 if self.headers["Range"] else 200)
            self.send_header("Content-Length", str(len(body) + 1))
            self.end_headers()
            self.wfile.write(body)
            self.close_connection = True
            return
        self.send_response(status)
        kind = "application/problem+json" if status >= 400 else "application/json"
        self.send_header("Content-Type", "text/html; charset=utf-8" if body.startswith(b"<") else kind)
        if self.location is not None:
            self.send_header("Location", self.location)
        if status in (429, 503) and self.retry_after is not None:
            self.send_header("Retry-After", self.retry_after)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class Calls:
    """The calls of a client, or of one of its teams, with results instead of awaitables and lists instead of streams."""

    def __init__(self, client: Any, runner: asyncio.Runner) -> None:
        self._client, self._runner = client, runner

    def team(self, slug: str) -> "Calls":
        return Calls(self._client.team(slug), self._runner)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            result = getattr(self._client, name)(*args, **options)
            if isinstance(result, AsyncIterator):
                return self._runner.run(listed(result))
            return self._runner.run(result) if isinstance(result, Coroutine) else result

        return call


async def listed(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]


Connect = Callable[[str], AbstractContextManager[Any]]


@pytest.fixture(params=["synchronous", "asynchronous"])
def connect(request: pytest.FixtureRequest) -> Connect:
    """Opens a client of either kind."""

    @contextmanager
    def opened(url: str) -> Iterator[Calls]:
        with asyncio.Runner() as runner:
            client = AsyncClient(url)
            yield Calls(client, runner)
            runner.run(client.aclose())

    return Client if request.param == "synchronous" else opened


@cache
def shared_tls_context() -> ssl.SSLContext:
    return tls_context()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Scripted]]:
    modules = ("calls.checkpoints", "calls.monitoring", "transport.connection", "transport.responses")
    for module in (
        *modules,
        "async_calls.checkpoints",
        "async_calls.monitoring",
        "transport.async_connection",
    ):
        monkeypatch.setattr(f"trainwright.{module}.RETRY_SECONDS", (0.01, 0.01))
    for module in ("connection", "async_connection"):  # reading all authorities takes a while
        monkeypatch.setattr(f"trainwright.transport.{module}.tls_context", shared_tls_context)
    handler = type(
        "Handler", (Scripted,), {"responses": {}, "asked": [], "ranges": [], "keys": [], "retry_after": None}
    )
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        handler.url = f"http://127.0.0.1:{http.server_port}"
        yield handler
        http.shutdown()
        thread.join()


def problem(status: int, code: str) -> tuple[int, bytes]:
    body = {"title": "no", "status": status, "code": code, "detail": "Wait a moment.", "errors": []}
    return status, json.dumps(body).encode()


def download(connect: Connect, server: type[Scripted], folder: Path, *, overwrite: bool = False) -> Path:
    with connect(server.url) as client:
        return client.team("crew").download("run_x", folder, "ckpt_x", overwrite=overwrite)


def serve_file(server: type[Scripted], *bodies: tuple[int, bytes]) -> None:
    files = json.dumps([FILE | {"url": "/blob"}]).encode()
    server.responses["/api/v1/teams/crew/runs/run_x/checkpoints/ckpt_x/files"] = [(200, files)]
    server.responses["/blob"] = list(bodies)


def test_requests_to_a_busy_server_are_retried(connect: Connect, server: type[Scripted]) -> None:
    server.responses["/api/v1/health"] = [
        problem(503, "database_busy"),
        (200, b'{"status":"ok","version":"1"}'),
    ]
    with connect(server.url) as client:
        assert client.health().status == "ok"
    assert len(server.asked) == 2


def test_a_refusal_is_not_retried_and_raises_its_code(connect: Connect, server: type[Scripted]) -> None:
    server.responses["/api/v1/me"] = [problem(401, "unauthorized")]
    with connect(server.url) as client, pytest.raises(ApiError) as refused:
        client.me()
    assert (refused.value.code, refused.value.status, str(refused.value)) == (
        "unauthorized",
        401,
        "Wait a moment.",
    )
    assert len(server.asked) == 1


def run_response(state: str, step: int = 0) -> tuple[int, bytes]:
    spec = RunSpec(name="pilot", data=DataSpec(dataset="ds_x"))
    summary = RunSummary(step=step, attempt=1, values={}, spark=[])
    run = Run(
        id="run_x",
        name="pilot",
        state=RunState(state),
        sentence="",
        spec=spec,
        flops=1.0,
        attempt=1,
        summary=summary,
        created=datetime(2026, 1, 1, tzinfo=UTC),
        created_by=None,
    )
    return 200, run.model_dump_json().encode()


def test_waiting_for_a_run_reports_only_changes(connect: Connect, server: type[Scripted]) -> None:
    script = [("queued", 0)] * 3 + [("running", 1)] * 2 + [("running", 2), ("succeeded", 2)]
    server.responses["/api/v1/teams/crew/runs/run_x"] = [run_response(*each) for each in script]
    told: list[tuple[str, int]] = []

    def report(run: Run) -> None:
        told.append((run.state.value, run.summary.step))

    with connect(server.url) as client:
        client.team("crew").wait("run_x", report, poll_seconds=0.001)
    assert told == [("queued", 0), ("running", 1), ("running", 2), ("succeeded", 2)]
    assert len(server.asked) == len(script)


@pytest.mark.parametrize("rest", [(206, CONTENT[500:]), (200, CONTENT)], ids=["the rest", "all of it"])
def test_an_interrupted_download_continues_where_it_broke_off(
    connect: Connect, server: type[Scripted], tmp_path: Path, rest: tuple[int, bytes]
) -> None:
    serve_file(server, (0, CONTENT[:500]), rest)
    reported: list[int] = []
    with connect(server.url) as client:
        team = client.team("crew")
        folder = team.download("run_x", tmp_path / "export", "ckpt_x", lambda done, _: reported.append(done))
    assert (folder / "model.safetensors").read_bytes() == CONTENT
    assert [file.name for file in folder.iterdir()] == ["model.safetensors"]
    assert [found for found in server.ranges if found] == ["bytes=500-"]
    assert reported[-1] == len(CONTENT) == max(reported)


def test_a_download_may_break_off_more_often_than_a_request_is_retried(
    connect: Connect, server: type[Scripted], tmp_path: Path
) -> None:
    parts = [CONTENT[start : start + 500] for start in range(0, len(CONTENT), 500)]
    serve_file(server, *((0, part) for part in parts))
    folder = download(connect, server, tmp_path / "export")
    assert (folder / "model.safetensors").read_bytes() == CONTENT
    assert len(parts) > len(RETRY_SECONDS)


def test_a_damaged_file_that_also_breaks_off_is_given_up(
    connect: Connect, server: type[Scripted], tmp_path: Path
) -> None:
    damaged = b"!" + CONTENT[1:]
    serve_file(server, *[(0, damaged[:500]), (206, damaged[500:])] * 10)
    with pytest.raises((DigestMismatchError, httpx.RemoteProtocolError)):
        download(connect, server, tmp_path / "export")
    assert len(server.responses["/blob"]) > 10, "it was given up early"


@pytest.mark.parametrize("short", [(200, CONTENT[:500]), (416, b"")], ids=["too few bytes", "no such bytes"])
def test_a_response_without_the_missing_bytes_is_asked_for_again(
    connect: Connect, server: type[Scripted], tmp_path: Path, short: tuple[int, bytes]
) -> None:
    serve_file(
        server,
        (0, CONTENT[:500]),
        short,
        (206 if short[0] == 200 else 200, CONTENT[500 if short[0] == 200 else 0 :]),
    )
    folder = download(connect, server, tmp_path / "export")
    assert (folder / "model.safetensors").read_bytes() == CONTENT


FILES = "/api/v1/teams/crew/runs/run_x/checkpoints/ckpt_x/files"
PARTIAL = f".model.safetensors.{FILE['digest']:.16}.part"


def test_a_download_outlasts_an_outage_behind_a_proxy(
    connect: Connect, server: type[Scripted], tmp_path: Path
) -> None:
    serve_file(server, (0, CONTENT[:500]), (206, CONTENT[500:]))
    [files] = server.responses[FILES]
    server.responses[FILES] = [files, *[(502, b"")] * (4 * len(RETRY_SECONDS)), files]
    folder = download(connect, server, tmp_path / "export")
    assert (folder / "model.safetensors").read_bytes() == CONTENT
    assert server.ranges[-1] == "bytes=500-"


def test_a_failed_download_is_continued_by_the_next_one(
    connect: Connect, server: type[Scripted], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_file(server, (0, CONTENT[:500]), (206, CONTENT[500:]))
    [files] = server.responses[FILES]
    server.responses[FILES] = [files, (502, b"")]
    monkeypatch.setattr("trainwright.transport.responses.UNREACHABLE_SECONDS", 0.0)
    with pytest.raises(ApiError, match="no response"):
        download(connect, server, tmp_path)
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [(PARTIAL, CONTENT[:500])]
    server.responses[FILES] = [files]
    reported: list[int] = []
    with connect(server.url) as client:
        client.team("crew").download("run_x", tmp_path, "ckpt_x", lambda done, _: reported.append(done))
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("model.safetensors", CONTENT)]
    assert server.ranges[-1] == "bytes=500-"
    assert (reported[0], reported[-1]) == (500, len(CONTENT))


def test_ctrl_c_keeps_what_was_downloaded(connect: Connect, server: type[Scripted], tmp_path: Path) -> None:
    serve_file(server, (0, CONTENT[:500]))

    def interrupt(done: int, _: int) -> None:
        if done == 500:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), connect(server.url) as client:
        client.team("crew").download("run_x", tmp_path, "ckpt_x", interrupt)
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [(PARTIAL, CONTENT[:500])]


@pytest.mark.parametrize("left", [b"!" * len(CONTENT), CONTENT + b"!"], ids=["damaged", "too long"])
def test_an_unusable_rest_of_a_download_is_replaced(
    connect: Connect, server: type[Scripted], tmp_path: Path, left: bytes
) -> None:
    serve_file(server, (200, CONTENT))
    (tmp_path / PARTIAL).write_bytes(left)
    download(connect, server, tmp_path)
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("model.safetensors", CONTENT)]


def test_two_downloads_do_not_write_the_same_file(
    connect: Connect, server: type[Scripted], tmp_path: Path
) -> None:
    serve_file(server, (200, CONTENT))
    with (
        PartialFile(tmp_path / "model.safetensors", len(CONTENT), str(FILE["digest"])),
        pytest.raises(BlockingIOError, match=r"Another download of .*model\.safetensors is in progress"),
    ):
        download(connect, server, tmp_path)
    download(connect, server, tmp_path)


def test_a_file_that_its_checkpoint_no_longer_has_is_named(
    connect: Connect, server: type[Scripted], tmp_path: Path
) -> None:
    serve_file(server, (0, CONTENT[:500]))
    server.responses[FILES] += [(200, b"[]")]
    with pytest.raises(LookupError, match=r"model\.safetensors is no longer a file of checkpoint ckpt_x"):
        download(connect, server, tmp_path)


def test_a_lost_response_is_asked_for_again_under_the_same_key(
    connect: Connect, server: type[Scripted]
) -> None:
    path = "/api/v1/teams/crew/runs/run_x/pause"
    server.responses[path] = [(0, b"{"), run_response("paused")]
    with connect(server.url) as client:
        assert client.team("crew").pause("run_x").state == "paused"
    assert server.asked == [path, path]
    first, second = server.keys
    assert first is not None and first == second


def test_a_damaged_file_is_never_renamed_to_its_final_name(
    connect: Connect, server: type[Scripted], tmp_path: Path
) -> None:
    serve_file(server, (200, CONTENT[:-1] + b"!"))
    with pytest.raises(DigestMismatchError, match=r"model\.safetensors"):
        download(connect, server, tmp_path / "export")
    assert list((tmp_path / "export").iterdir()) == []


def test_partial_files_of_an_interrupted_download_are_used(
    connect: Connect, server: type[Scripted], tmp_path: Path
) -> None:
    serve_file(server, (200, CONTENT))
    download(connect, server, tmp_path)
    download(connect, server, tmp_path)
    assert server.asked.count("/blob") == 1


@pytest.mark.parametrize("name", ["model.safetensors", "model-00002-of-00002.safetensors"])
def test_a_folder_with_another_model_is_refused_unless_it_may_be_overwritten(
    connect: Connect, server: type[Scripted], tmp_path: Path, name: str
) -> None:
    serve_file(server, (200, CONTENT))
    (tmp_path / name).write_bytes(b"another model")
    (tmp_path / "notes.txt").write_text("no model")
    with pytest.raises(FileExistsError, match=rf"another model: {name}\. Nothing .* --overwrite"):
        download(connect, server, tmp_path)
    assert (tmp_path / name).read_bytes() == b"another model" and "/blob" not in server.asked
    download(connect, server, tmp_path, overwrite=True)
    assert (tmp_path / "model.safetensors").read_bytes() == CONTENT


def test_files_that_no_dataset_can_be_made_of_are_named_before_anything_is_sent(
    connect: Connect, server: type[Scripted], tmp_path: Path
) -> None:
    file = tmp_path / "words.json"
    file.write_text('[{"text": "a"}]')
    with connect(server.url) as client, pytest.raises(ValueError, match=r"words\.json"):
        client.team("crew").upload("words", [file])


def test_a_file_name_that_leaves_the_folder_is_refused(
    connect: Connect, server: type[Scripted], tmp_path: Path
) -> None:
    evil = json.dumps([FILE | {"name": "../evil", "url": "/blob"}]).encode()
    server.responses["/api/v1/teams/crew/runs/run_x/checkpoints/ckpt_x/files"] = [(200, evil)]
    with pytest.raises(ValueError, match="leaves the folder"):
        download(connect, server, tmp_path / "export")
    assert not (tmp_path / "evil").exists()


def test_a_list_is_read_page_by_page_and_from_an_older_server_as_an_array(
    connect: Connect, server: type[Scripted]
) -> None:
    def recipe(name: str) -> dict[str, object]:
        saved = {"saved": "2026-01-01T00:00:00Z", "saved_by": "Ada"}
        return {"id": f"recipe_{name}", "name": name, "spec": {}, "problems": [], **saved}

    pages = [
        {"items": [recipe("a"), recipe("b")], "next_cursor": "recipe_b"},
        {"items": [recipe("c")], "next_cursor": None},
    ]
    path = "/api/v1/teams/crew/recipes"
    with connect(server.url) as client:
        server.responses[path] = [(200, json.dumps(page).encode()) for page in pages]
        assert [item.name for item in client.team("crew").recipes()] == ["a", "b", "c"]
        server.responses[path] = [(200, json.dumps([recipe("a")]).encode())]
        assert [item.name for item in client.team("crew").recipes()] == ["a"]


ME = json.dumps(
    {"id": "user_x", "name": "Ada", "email": "a@b.example", "site_admin": False, "teams": []}
).encode()
KEY = json.dumps(
    {
        "id": "key_x",
        "name": "k",
        "prefix": "tw_",
        "created": "2026-01-01T00:00:00Z",
        "last_used": None,
        "secret": "s",
    }
).encode()


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("localhost:8000", "it needs http:// or https://, and a host"),
        ("train.example", "it needs http:// or https://, and a host"),
        ("http://", "it needs http:// or https://, and a host"),
        ("", "it needs http:// or https://, and a host"),
        ("http://[::1", "Invalid port"),
    ],
)
def test_an_invalid_address_is_refused_at_once(connect: Connect, address: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(repr(address))} is not .* server: {reason}"):
        connect(address).__enter__()
    done = CliRunner().invoke(app, ["account", "show", "--server", address, "--key", "tw_x"])
    assert done.exit_code == 1 and "Write it as http://127.0.0.1:8000 or https://" in done.stderr


def test_a_redirect_says_where_it_leads(connect: Connect, server: type[Scripted]) -> None:
    server.responses["/api/v1/me"] = server.responses["/api/v1/me/keys/k"] = [(301, b"")]
    sign_in = "A proxy may want you to sign in"
    advice = {
        "https://train.example/api/v1/me": "Use https://train.example as the address of the server (--server).",
        "https://login.example/?next=https://train.example/api/v1/me": sign_in,
        "/sign-in": sign_in,
    }
    with connect(server.url) as client:
        for location, advised in advice.items():
            server.location = location
            for call in (client.me, lambda: client.revoke_key("k")):
                with pytest.raises(UnexpectedResponseError) as refused:
                    call()
                assert f"redirects to {location}. {advised}" in refused.value.detail
    assert len(server.asked) == 2 * len(advice)


def test_a_web_page_of_a_proxy_is_no_response(
    connect: Connect, server: type[Scripted], tmp_path: Path
) -> None:
    page = (200, b"<html>Sign in</html>")
    serve_file(server, (0, CONTENT[:500]), page)
    for path in ("me", "me/keys/k", "teams/crew/runs/export", "teams/crew/recipes"):
        server.responses[f"/api/v1/{path}"] = [page]
    with connect(server.url) as client:
        team = client.team("crew")
        for call in (
            client.me,
            lambda: client.revoke_key("k"),
            lambda: team.export_runs(tmp_path / "runs.csv"),
            team.recipes,
            lambda: team.download("run_x", tmp_path, "ckpt_x"),
        ):
            with pytest.raises(UnexpectedResponseError, match="web page instead of data"):
                call()
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [(PARTIAL, CONTENT[:500])]


def test_a_response_that_cannot_be_read_is_an_error_of_its_own(
    connect: Connect, server: type[Scripted]
) -> None:
    reasons = {b"[]": "Input should be an object", b"hello": "Invalid JSON", b"{}": "id: Field required"}
    with connect(server.url) as client:
        for body, reason in reasons.items():
            server.responses["/api/v1/me"] = [(200, body)]
            with pytest.raises(UnexpectedResponseError) as found:
                client.me()
            assert f"GET {server.url}/api/v1/me gave a response" in found.value.detail
            assert f"cannot read: {reason}" in found.value.detail


def test_a_list_that_cannot_be_read_is_an_error_of_its_own(connect: Connect, server: type[Scripted]) -> None:
    bodies = (b'{"items": 1}', b"{}", b"hello", b"[1]", b'{"items": [{}], "next_cursor": null}')
    keys, recipes = "/api/v1/me/keys", "/api/v1/teams/crew/recipes"
    with connect(server.url) as client:
        for body in bodies:
            server.responses[keys] = server.responses[recipes] = [(200, body)]
            for call in (client.api_keys, client.team("crew").recipes):
                with pytest.raises(UnexpectedResponseError, match="cannot read"):
                    call()


def test_a_command_does_not_take_a_bad_response_for_a_bad_argument(server: type[Scripted]) -> None:
    server.responses["/api/v1/me"] = [(200, b"{}")]
    done = CliRunner().invoke(app, ["account", "show", "--server", server.url, "--key", "tw_x"])
    assert done.exit_code == 1 and "cannot read: id: Field required. Is it the address" in done.stderr


def recorded_sleeps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let both clients go on at once; returns the seconds that they would have slept, as they grow."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    for module in ("transport.connection", "calls.monitoring"):
        monkeypatch.setattr(f"trainwright.{module}.sleep", slept.append)
    for module in ("transport.async_connection", "async_calls.monitoring"):
        monkeypatch.setattr(f"trainwright.{module}.sleep", sleep)
    return slept


@pytest.mark.parametrize(
    ("status", "retry_after", "waits"),
    [
        (503, "3", [3.0]),
        (429, "3", [3.0]),
        (503, None, [0.01]),
        (503, "Wed, 21 Oct 2026 07:28:00 GMT", [0.01]),
        (429, None, None),
        (429, "600", None),
        (503, "31", None),
        (500, "3", None),
    ],
)
@pytest.mark.parametrize("method", ["read", "change"])
def test_a_busy_server_is_asked_again_after_the_time_that_it_names(
    connect: Connect,
    server: type[Scripted],
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    status: int,
    retry_after: str | None,
    waits: list[float] | None,
) -> None:
    slept = recorded_sleeps(monkeypatch)
    server.retry_after = retry_after
    path, body = ("/api/v1/me", ME) if method == "read" else ("/api/v1/me/keys", KEY)
    server.responses[path] = [problem(status, "busy"), (200, body)]
    with connect(server.url) as client:

        def call() -> object:
            return client.me() if method == "read" else client.create_key("k")

        if waits is None:
            with pytest.raises(ApiError, match="Wait a moment"):
                call()
        else:
            call()
    assert slept == (waits or []) and len(server.asked) == 1 + len(slept)


@pytest.mark.parametrize("status", [502, 504])
def test_a_proxy_without_its_server_is_asked_again_only_for_reads(
    connect: Connect, server: type[Scripted], status: int
) -> None:
    """The server may have carried a change out before it was lost."""
    gone = (status, b"")
    server.responses["/api/v1/me"] = [gone, gone, (200, ME)]
    server.responses["/api/v1/me/keys"] = [gone, (200, KEY)]
    with connect(server.url) as client:
        client.me()
        with pytest.raises(ApiError, match=f"got no response from it.* .{status} .*Try again in a moment"):
            client.create_key("k")
    assert server.asked == ["/api/v1/me"] * 3 + ["/api/v1/me/keys"]


def test_waiting_survives_an_upgrade_behind_a_proxy(connect: Connect, server: type[Scripted]) -> None:
    path = "/api/v1/teams/crew/runs/run_x"
    away = [(502, b"")] * (3 * len(RETRY_SECONDS)) + [problem(503, "database_busy")] * 2
    server.responses[path] = [run_response("running"), *away, run_response("succeeded")]
    with connect(server.url) as client:
        assert client.team("crew").wait("run_x", poll_seconds=0.01).state == "succeeded"
        server.responses[path] = [problem(403, "forbidden")]
        with pytest.raises(ApiError, match="Wait a moment"):
            client.team("crew").wait("run_x")


def test_a_server_that_asks_for_a_long_delay_is_not_asked_without_pause(
    connect: Connect, server: type[Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    slept = recorded_sleeps(monkeypatch)
    server.retry_after = "600"
    server.responses["/api/v1/teams/crew/runs/run_x"] = [problem(503, "busy")] * 3 + [
        run_response("succeeded")
    ]
    with connect(server.url) as client:
        client.team("crew").wait("run_x")
    assert len(slept) == 3 and len(server.asked) == 4


def test_a_followed_log_survives_an_upgrade_behind_a_proxy(connect: Connect, server: type[Scripted]) -> None:
    text = json.dumps({"text": "step 1", "offset": 0, "next_offset": 6, "end": True}).encode()
    path = "/api/v1/teams/crew/runs/run_x/logs/1/rank-0.log"
    server.responses[path] = [(502, b"")] * (2 * len(RETRY_SECONDS)) + [(200, text)]
    with connect(server.url) as client:
        team = client.team("crew")
        assert team.log_text("run_x", 1, "rank-0.log", patiently=True).text == "step 1"
        server.responses[path] = [(502, b"")] * (2 * len(RETRY_SECONDS)) + [(200, text)]
        with pytest.raises(ApiError, match="no response"):
            team.log_text("run_x", 1, "rank-0.log")


def test_a_stream_that_a_proxy_does_not_pass_is_an_error(
    connect: Connect, server: type[Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainwright.transport.responses.UNREACHABLE_SECONDS", 0.05)
    server.responses["/api/v1/teams/crew/runs/run_x"] = [run_response("running")]
    server.responses["/api/v1/teams/crew/runs/run_x/metrics/stream"] = [(504, b"")]
    with connect(server.url) as client, pytest.raises(ApiError, match="in time"):
        list(client.team("crew").stream_metrics("run_x"))


def test_points_are_streamed_from_where_the_connection_broke(
    connect: Connect, server: type[Scripted]
) -> None:
    def points(step: int) -> bytes:
        data = json.dumps({"attempt": 1, "steps": [step], "series": {"loss": [1.0]}})
        return f"id: 1:{step}\nevent: points\ndata: {data}\n\n".encode()

    server.responses["/api/v1/teams/crew/runs/run_x"] = [run_response("succeeded")]
    server.responses["/api/v1/teams/crew/runs/run_x/metrics/stream"] = [(0, points(1)), (200, points(2))]
    with connect(server.url) as client:
        found = list(client.team("crew").stream_metrics("run_x"))
    assert [item.steps for item in found] == [[1], [2]]


STREAM = "/api/v1/teams/crew/runs/run_x/metrics/stream"


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_is_asked_for_a_stream_again_after_the_time_that_it_names(
    connect: Connect, server: type[Scripted], monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    slept = recorded_sleeps(monkeypatch)
    server.retry_after = "7"
    server.responses["/api/v1/teams/crew/runs/run_x"] = [run_response("succeeded")]
    server.responses[STREAM] = [problem(status, "busy"), problem(status, "busy"), (200, b"")]
    with connect(server.url) as client:
        assert list(client.team("crew").stream_metrics("run_x")) == []
    assert slept == [7.0, 7.0]


def test_a_stream_that_ends_at_once_is_not_asked_for_again_without_pause(
    connect: Connect, server: type[Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    slept = recorded_sleeps(monkeypatch)
    for module in ("calls", "async_calls"):
        monkeypatch.setattr(f"trainwright.{module}.monitoring.RETRY_SECONDS", (1.0, 2.0))
    server.responses["/api/v1/teams/crew/runs/run_x"] = [run_response("running")] * 3 + [
        run_response("succeeded")
    ]
    server.responses[STREAM] = [(200, b"")]
    with connect(server.url) as client:
        assert list(client.team("crew").stream_metrics("run_x")) == []
    assert slept == [1.0, 2.0, 2.0]


def test_an_export_is_asked_for_again_if_the_server_is_busy_or_the_connection_breaks(
    connect: Connect, server: type[Scripted], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    slept = recorded_sleeps(monkeypatch)
    for module in ("connection", "async_connection"):
        monkeypatch.setattr(f"trainwright.transport.{module}.RETRY_SECONDS", (0.1,) * 4)
    server.retry_after = "3"
    path = "/api/v1/teams/crew/runs/export"
    server.responses[path] = [problem(429, "busy"), (0, b"id,na"), (502, b""), (200, b"id,name")]
    with connect(server.url) as client:
        file = client.team("crew").export_runs(tmp_path / "runs.csv")
        assert (file.read_bytes(), slept) == (b"id,name", [3.0, 0.1, 0.1])
        server.responses[path] = [(502, b"")]
        with pytest.raises(ApiError, match="no response"):
            client.team("crew").export_runs(tmp_path / "more.csv")
    assert [found.name for found in tmp_path.iterdir()] == ["runs.csv"]


def test_calls_of_the_asynchronous_client_wait_at_the_same_time(server: type[Scripted]) -> None:
    server.retry_after = "1"
    server.responses["/api/v1/me"] = [problem(503, "busy")] * 8 + [(200, ME)]

    async def ask() -> float:
        async with AsyncClient(server.url) as client:
            start = time.monotonic()
            await asyncio.gather(*(client.me() for _ in range(8)))
            return time.monotonic() - start

    assert asyncio.run(ask()) < 4, "one after the other they would wait for 8 s"


@pytest.mark.parametrize(("one", "other"), [(Client, AsyncClient), (TeamClient, AsyncTeamClient)])
def test_both_clients_have_the_same_calls(one: type, other: type) -> None:
    names = {name for name in dir(one) if not name.startswith("_")} - {"close"}
    assert names == {name for name in dir(other) if not name.startswith("_")} - {"aclose"}
    waits = {name for name in names if name != "team"}
    for name in waits:
        method = getattr(other, name)
        assert inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method), name
        assert list(inspect.signature(method).parameters) == list(
            inspect.signature(getattr(one, name)).parameters
        )


def test_the_synchronous_client_is_the_generated_one(repository: Path) -> None:
    check = [sys.executable, str(repository / "infra" / "sync_client.py"), "--check"]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
