"""Broken connections: the client retries reads, detects damage, and renames only complete files."""

import hashlib
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from trainwright.client import Client
from trainwright.contracts.api.runs import Run, RunSummary
from trainwright.contracts.data_spec import DataSpec
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.run_state import RunState
from trainwright.transport.connection import ApiError, DigestMismatchError

CONTENT = b"weights " * 1_000
FILE = {"name": "model.safetensors", "bytes": len(CONTENT), "digest": hashlib.sha256(CONTENT).hexdigest()}


class Scripted(BaseHTTPRequestHandler):
    """Replies from a list of replies per path; the last one is repeated."""

    answers: dict[str, list[tuple[int, bytes]]]
    asked: list[str]
    retry_after: str | None

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.asked.append(path)
        script = self.answers[path]
        status, body = script.pop(0) if len(script) > 1 else script[0]
        if status == 0:  # drop the connection in the middle of the response
            self.send_response(200)
            self.send_header("Content-Length", str(len(body) + 1))
            self.end_headers()
            self.wfile.write(body)
            self.close_connection = True
            return
        self.send_response(status)
        kind = "application/problem+json" if status >= 400 else "application/json"
        self.send_header("Content-Type", kind)
        if status in (429, 503) and self.retry_after is not None:
            self.send_header("Retry-After", self.retry_after)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Scripted]]:
    for module in ("calls.checkpoints", "calls.monitoring", "transport.connection"):
        monkeypatch.setattr(f"trainwright.{module}.RETRY_SECONDS", (0.01, 0.01))
    handler = type("Handler", (Scripted,), {"answers": {}, "asked": [], "retry_after": None})
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


def download(server: type[Scripted], folder: Path, *, overwrite: bool = False) -> Path:
    with Client(server.url) as client:
        return client.team("crew").download("run_x", folder, "ckpt_x", overwrite=overwrite)


def serve_file(server: type[Scripted], *bodies: tuple[int, bytes]) -> None:
    files = json.dumps([FILE | {"url": "/blob"}]).encode()
    server.answers["/api/v1/teams/crew/runs/run_x/checkpoints/ckpt_x/files"] = [(200, files)]
    server.answers["/blob"] = list(bodies)


def test_requests_to_a_busy_server_are_retried(server: type[Scripted]) -> None:
    server.answers["/api/v1/health"] = [
        problem(503, "database_busy"),
        (200, b'{"status":"ok","version":"1"}'),
    ]
    with Client(server.url) as client:
        assert client.health().status == "ok"
    assert len(server.asked) == 2


def test_a_refusal_is_not_retried_and_raises_its_code(server: type[Scripted]) -> None:
    server.answers["/api/v1/me"] = [problem(401, "unauthorized")]
    with Client(server.url) as client, pytest.raises(ApiError) as refused:
        client.me()
    assert (refused.value.code, refused.value.status, str(refused.value)) == (
        "unauthorized",
        401,
        "Wait a moment.",
    )
    assert len(server.asked) == 1


def test_waiting_for_a_run_reports_only_changes(server: type[Scripted]) -> None:
    def answer(state: str, step: int) -> tuple[int, bytes]:
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

    script = [("queued", 0)] * 3 + [("running", 1)] * 2 + [("running", 2), ("succeeded", 2)]
    server.answers["/api/v1/teams/crew/runs/run_x"] = [answer(*each) for each in script]
    told: list[tuple[str, int]] = []

    def report(run: Run) -> None:
        told.append((run.state.value, run.summary.step))

    with Client(server.url) as client:
        client.team("crew").wait("run_x", report, poll_seconds=0.001)
    assert told == [("queued", 0), ("running", 1), ("running", 2), ("succeeded", 2)]
    assert len(server.asked) == len(script)


def test_an_interrupted_download_is_retried(server: type[Scripted], tmp_path: Path) -> None:
    serve_file(server, (0, CONTENT[:500]), (200, CONTENT))
    folder = download(server, tmp_path / "export")
    assert (folder / "model.safetensors").read_bytes() == CONTENT
    assert [file.name for file in folder.iterdir()] == ["model.safetensors"]


def test_a_damaged_file_is_never_renamed_to_its_final_name(server: type[Scripted], tmp_path: Path) -> None:
    serve_file(server, (200, CONTENT[:-1] + b"!"))
    with pytest.raises(DigestMismatchError, match=r"model\.safetensors"):
        download(server, tmp_path / "export")
    assert list((tmp_path / "export").iterdir()) == []


def test_partial_files_of_an_interrupted_download_are_used(server: type[Scripted], tmp_path: Path) -> None:
    serve_file(server, (200, CONTENT))
    download(server, tmp_path)
    download(server, tmp_path)
    assert server.asked.count("/blob") == 1


@pytest.mark.parametrize("name", ["model.safetensors", "model-00002-of-00002.safetensors"])
def test_a_folder_with_another_model_is_refused_unless_it_may_be_overwritten(
    server: type[Scripted], tmp_path: Path, name: str
) -> None:
    serve_file(server, (200, CONTENT))
    (tmp_path / name).write_bytes(b"another model")
    (tmp_path / "notes.txt").write_text("no model")
    with pytest.raises(FileExistsError, match=rf"another model: {name}\. Nothing .* --overwrite"):
        download(server, tmp_path)
    assert (tmp_path / name).read_bytes() == b"another model" and "/blob" not in server.asked
    download(server, tmp_path, overwrite=True)
    assert (tmp_path / "model.safetensors").read_bytes() == CONTENT


def test_files_that_no_dataset_can_be_made_of_are_named_before_anything_is_sent(
    server: type[Scripted], tmp_path: Path
) -> None:
    file = tmp_path / "words.json"
    file.write_text('[{"text": "a"}]')
    with Client(server.url) as client, pytest.raises(ValueError, match=r"words\.json"):
        client.team("crew").upload("words", [file])


def test_a_file_name_that_leaves_the_folder_is_refused(server: type[Scripted], tmp_path: Path) -> None:
    evil = json.dumps([FILE | {"name": "../evil", "url": "/blob"}]).encode()
    server.answers["/api/v1/teams/crew/runs/run_x/checkpoints/ckpt_x/files"] = [(200, evil)]
    with pytest.raises(ValueError, match="leaves the folder"):
        download(server, tmp_path / "export")
    assert not (tmp_path / "evil").exists()


def test_a_list_is_read_page_by_page_and_from_an_older_server_as_an_array(server: type[Scripted]) -> None:
    def recipe(name: str) -> dict[str, object]:
        saved = {"saved": "2026-01-01T00:00:00Z", "saved_by": "Ada"}
        return {"id": f"recipe_{name}", "name": name, "spec": {}, "problems": [], **saved}

    pages = [
        {"items": [recipe("a"), recipe("b")], "next_cursor": "recipe_b"},
        {"items": [recipe("c")], "next_cursor": None},
    ]
    path = "/api/v1/teams/crew/recipes"
    with Client(server.url) as client:
        server.answers[path] = [(200, json.dumps(page).encode()) for page in pages]
        assert [item.name for item in client.team("crew").recipes()] == ["a", "b", "c"]
        server.answers[path] = [(200, json.dumps([recipe("a")]).encode())]
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
    server: type[Scripted],
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    status: int,
    retry_after: str | None,
    waits: list[float] | None,
) -> None:
    slept: list[float] = []
    monkeypatch.setattr("trainwright.transport.connection.time", SimpleNamespace(sleep=slept.append))
    server.retry_after = retry_after
    path, body = ("/api/v1/me", ME) if method == "read" else ("/api/v1/me/keys", KEY)
    server.answers[path] = [problem(status, "busy"), (200, body)]
    with Client(server.url) as client:

        def call() -> object:
            return client.me() if method == "read" else client.create_key("k")

        if waits is None:
            with pytest.raises(ApiError, match="Wait a moment"):
                call()
        else:
            call()
    assert slept == (waits or []) and len(server.asked) == 1 + len(slept)
