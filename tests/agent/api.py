"""The API's side of the agent protocol, scripted: a real HTTP server on loopback that records its requests.

It answers as docs/lifecycle.md specifies. A test sets how it misbehaves: being unavailable, losing replies, ordering a
kill.
"""

import hashlib
import json
import socket
import struct
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from trainwright.contracts.agent_protocol import Timers
from trainwright.contracts.run_spec import RunSpec

JOIN_TOKEN = "join-once"
NODE_TOKEN = "canary-node-token-4711"

TIMERS = Timers(
    heartbeat_seconds=0.5,
    renewal_seconds=0.5,
    lease_seconds=6.0,
    margin_seconds=1.5,
    grace_seconds=0.5,
    sweep_seconds=1.0,
    backoff_seconds=0.5,
    start_seconds=30.0,
)


class RefusalError(Exception):
    """An error reply."""

    def __init__(self, status: int, code: str, **extensions: object) -> None:
        super().__init__(code)
        self.status = status
        self.body = {"title": code, "status": status, "code": code, "detail": code, **extensions}


@dataclass
class ScriptedRun:
    """One run, and everything that the API received for it."""

    run_id: str
    job: dict[str, Any]
    downloads: list[dict[str, Any]]
    fence: int = 1
    order: str = "go"
    claim_id: str | None = None
    deleted: bool = False
    refused_step: int | None = None
    """A batch with metrics of this step is answered with 422."""
    refused_log: str | None = None
    closed: bool = False
    traceparent: str | None = None
    has_other_nodes: bool = False
    """A commit waits until all announced files have arrived, and not only the manifest."""
    announced: dict[int, list[str]] = field(default_factory=dict)
    """Object keys by step."""
    claims: list[str] = field(default_factory=list)
    renewals: list[dict[str, Any]] = field(default_factory=list)
    files: dict[str, int] = field(default_factory=dict)
    logs: dict[str, bytes] = field(default_factory=dict)
    steps: list[int] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    hardware: list[dict[str, Any]] = field(default_factory=list)
    commits: list[dict[str, Any]] = field(default_factory=list)
    ends: list[dict[str, Any]] = field(default_factory=list)

    @property
    def phases(self) -> list[str]:
        """Reported phases in order, without repetitions."""
        phases = [renewal["phase"] for renewal in self.renewals]
        return [phase for index, phase in enumerate(phases) if phases[index - 1 : index] != [phase]]

    @property
    def end(self) -> dict[str, Any]:
        return self.ends[-1]["exit"]


class ScriptedApi:
    """The server. Attributes may be changed while it serves."""

    def __init__(self) -> None:
        self.timers = TIMERS
        self.runs: dict[str, ScriptedRun] = {}
        self.objects: dict[str, bytes] = {}
        self.heartbeats: list[dict[str, Any]] = []
        self.hints_url: str | None = None
        self.object_store: Path | None = None
        """Folder in which linked files appear."""
        self.away = False
        self.lose_replies: Counter[str] = Counter()
        """The number of requests, by action, that are carried out without a reply."""
        self.reply_delays: dict[str, float] = {}
        """Seconds, by action, between carrying out a request and replying."""
        self.break_off_bytes: int | None = None
        """Downloads of objects are reset after this many bytes."""
        self.expired_links: set[str] = set()
        """Paths of links that are refused. A repeated claim gives others."""
        self.begins: list[str | None] = []
        """The Range header of each download of an object."""
        self.has_ranges = True
        """Whether downloads may begin anywhere."""
        self.lock = threading.RLock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def place(
        self, name: str = "plain", steps: int = 40, ranks: int = 2, kind: str = "train", **job: Any
    ) -> ScriptedRun:
        """Place a run whose name determines the behaviour of the stand-in."""
        spec = RunSpec.model_validate(
            {
                "name": name,
                "data": {"dataset": "ds_1"},
                "schedule": {"steps": steps, "warmup_steps": 0},
                "checkpoint": {"every_steps": 10},
                "resources": {"device": "cpu", "slots_per_node": ranks},
            }
        )
        run_id = f"run_{len(self.runs) + 1}"
        job = {
            "kind": kind,
            "run_id": run_id,
            "attempt": 1,
            "fence": 1,
            "spec": spec.model_dump(mode="json"),
            "device": "cpu",
            "slots": list(range(ranks)),
            **job,
        }
        downloads = [
            self.store("data/manifest.json", b"{}"),
            self.store("data/train-0.bin", b"tokens" * 1000),
        ]
        run = ScriptedRun(run_id=run_id, job=job, downloads=downloads)
        with self.lock:
            self.runs[run_id] = run
        return run

    def store(self, path: str, content: bytes) -> dict[str, Any]:
        """Store an object; returns its entry in a claim."""
        key = f"store/{path}"
        self.objects[key] = content
        digest = hashlib.sha256(content).hexdigest()
        return {
            "path": path,
            "bytes": len(content),
            "digest": digest,
            "url": f"/api/v1/blobs/{key}",
            "object_key": key,
        }

    @staticmethod
    def with_new_link(download: dict[str, Any], number: int) -> dict[str, Any]:
        """The entry of a claim with the link that was made after ``number`` others."""
        return {
            **download,
            "url": f"/api/v1/blobs/{download['object_key']}" + (f"?link={number}" if number else ""),
        }

    # Handlers

    def handle(self, method: str, target: str, headers: Any, body: bytes) -> Any:
        url = urlsplit(target)
        parts = url.path.removeprefix("/api/v1/").split("/")
        if parts[0] == "blobs":
            return self._blob(method, target.removeprefix("/api/v1/blobs/"), headers, body)
        if parts[1] == "join":
            return self._join(json.loads(body))
        if headers.get("Authorization") != f"Bearer {NODE_TOKEN}":
            raise RefusalError(401, "not_signed_in")
        if parts[1] == "heartbeat":
            return self._heartbeat(json.loads(body))
        run = self.runs[parts[2]]
        if run.deleted:
            raise RefusalError(404, "not_found")
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        if parts[3] == "logs":
            return self._log(run, parts[4], query, body)
        if parts[3] == "offsets":
            return {"files": run.files}
        return getattr(self, f"_{parts[3]}")(run, json.loads(body))

    def _join(self, body: dict[str, Any]) -> Any:
        if body["token"] != JOIN_TOKEN:
            raise RefusalError(403, "bad_join_token")
        return {
            "node_id": "node_1",
            "node_token": NODE_TOKEN,
            "hints_url": self.hints_url,
            "timers": self.timers.model_dump(),
        }

    def _heartbeat(self, body: dict[str, Any]) -> Any:
        self.heartbeats.append({**body, "at": time.monotonic()})
        placements = [
            {
                "run_id": run.run_id,
                "device": "cpu",
                "slots": run.job["slots"],
                "claimed": run.claim_id is not None,
                "fence": run.fence if run.claim_id else None,
            }
            for run in self.runs.values()
            if not run.closed and not run.deleted
        ]
        return {"placements": placements, "timers": self.timers.model_dump(), "hints_url": self.hints_url}

    def _claim(self, run: ScriptedRun, body: dict[str, Any]) -> Any:
        run.claims.append(body["claim_id"])
        if run.claim_id not in (None, body["claim_id"]):
            raise RefusalError(409, "claim_refused")
        run.claim_id = body["claim_id"]
        return {
            "claim_id": run.claim_id,
            "fence": run.fence,
            "attempt": run.job["attempt"],
            "timers": self.timers.model_dump(),
            "job": run.job,
            "downloads": [
                self.with_new_link(download, run.claims.count(body["claim_id"]) - 1)
                for download in run.downloads
            ],
            "traceparent": run.traceparent,
        }

    def _renew(self, run: ScriptedRun, body: dict[str, Any]) -> Any:
        self._check_fence(run, body)
        if run.closed:
            if body["phase"] == "ended":
                return {"order": "leave", "timers": self.timers.model_dump()}
            raise RefusalError(409, "stale_fence")
        run.renewals.append({**body, "at": time.monotonic()})
        return {"order": run.order, "timers": self.timers.model_dump()}

    def _batches(self, run: ScriptedRun, body: dict[str, Any]) -> Any:
        self._check_fence(run, body)
        if any(run.refused_step in block["steps"] for block in body["metrics"]):
            raise RefusalError(422, "invalid")
        self._extend(run, body["file"], body["offset"], body["next_offset"])
        for block in body["metrics"]:
            assert all(len(values) == len(block["steps"]) for values in block["series"].values())
            run.steps += block["steps"]
        run.events += body["events"]
        if body.get("hardware") is not None:
            run.hardware.append(body["hardware"])
        return {"offset": body["next_offset"]}

    def _log(self, run: ScriptedRun, file: str, query: dict[str, str], body: bytes) -> Any:
        self._check_fence(run, {"fence": int(query["fence"])})
        if file == run.refused_log:
            raise RefusalError(422, "invalid")
        offset = int(query["offset"])
        self._extend(run, file, offset, offset + len(body))
        run.logs[file] = run.logs.get(file, b"") + body
        return {"offset": offset + len(body)}

    def _extend(self, run: ScriptedRun, file: str, offset: int, next_offset: int) -> None:
        stored = run.files.get(file, 0)
        if offset != stored:
            raise RefusalError(409, "wrong_offset", offset=stored)
        run.files[file] = next_offset

    def _uploads(self, run: ScriptedRun, body: dict[str, Any]) -> Any:
        self._check_open(run, body)
        links = []
        run.announced[body["step"]] = [
            f"{run.run_id}/f{run.fence}/{body['kind']}-{body['step']}/{file['name']}"
            for file in body["files"]
        ]
        for file in body["files"]:
            key = f"{run.run_id}/f{run.fence}/{body['kind']}-{body['step']}/{file['name']}"
            if key not in self.objects:
                url = f"/api/v1/blobs/{key}?digest={file['digest']}"
                links.append({"name": file["name"], "url": url, "object_key": key})
        return {"links": links}

    def _checkpoints(self, run: ScriptedRun, body: dict[str, Any]) -> Any:
        self._check_open(run, body)
        if body["events_offset"] > run.files.get("events.jsonl", 0):
            raise RefusalError(409, "events_behind")
        manifest = f"{run.run_id}/f{run.fence}/{body['kind']}-{body['step']}/manifest.json"
        linked = self.object_store is not None and (self.object_store / manifest).exists()
        if manifest not in self.objects and not linked:
            raise RefusalError(409, "checkpoint_incomplete")
        if run.has_other_nodes and any(key not in self.objects for key in run.announced[body["step"]]):
            raise RefusalError(409, "awaiting_nodes")
        run.commits.append(body)
        return {"checkpoint_id": f"cp_{len(run.commits)}"}

    def _end(self, run: ScriptedRun, body: dict[str, Any]) -> Any:
        self._check_fence(run, body)
        for file, size in body["offsets"].items():
            if run.files.get(file, 0) < size:
                raise RefusalError(409, "file_short", file=file)
        exported = any(commit["kind"] == "export" for commit in run.commits)
        if body["exit"]["code"] == "finished" and not exported:
            raise RefusalError(409, "not_exported")
        run.ends.append(body)
        run.closed = True
        return {
            "state": "succeeded" if body["exit"]["code"] == "finished" else "retry_wait",
            "code": body["exit"]["code"],
        }

    def _blob(self, method: str, target: str, headers: Any, body: bytes) -> Any:
        assert "Authorization" not in headers, "the node token went to a signed link"
        key, _, digest = target.partition("?digest=")
        if method == "GET":
            if target in self.expired_links:
                raise RefusalError(403, "link_expired")
            key = target.partition("?")[0]
            if key not in self.objects:
                raise RefusalError(404, "not_found")
            return self.objects[key]
        if hashlib.sha256(body).hexdigest() != digest:
            raise RefusalError(422, "invalid")
        self.objects[key] = body
        return {}

    def _check_fence(self, run: ScriptedRun, body: dict[str, Any]) -> None:
        if body["fence"] != run.fence:
            raise RefusalError(409, "stale_fence")

    def _check_open(self, run: ScriptedRun, body: dict[str, Any]) -> None:
        self._check_fence(run, body)
        if run.closed:
            raise RefusalError(409, "stale_fence")

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._serve("GET")

            def do_POST(self) -> None:
                self._serve("POST")

            def do_PUT(self) -> None:
                self._serve("PUT")

            def _serve(self, method: str) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if api.away:
                    self.close_connection = True
                    return
                status, content = 200, b""
                with api.lock:
                    try:
                        response = api.handle(method, self.path, self.headers, body)
                        content = response if isinstance(response, bytes) else json.dumps(response).encode()
                    except RefusalError as refusal:
                        status, content = refusal.status, json.dumps(refusal.body).encode()
                    action = self.path.partition("?")[0].split("/")[-1]
                    if api.lose_replies[action] > 0:
                        api.lose_replies[action] -= 1
                        self.close_connection = True
                        return
                time.sleep(api.reply_delays.get(action, 0.0))
                is_download = method == "GET" and "/blobs/" in self.path
                if is_download:
                    api.begins.append(self.headers["Range"])
                    if status == 200 and api.has_ranges and (wanted := self.headers["Range"]):
                        begin = int(wanted.removeprefix("bytes=").removesuffix("-"))
                        status, content = (206 if begin < len(content) else 416), content[begin:]
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if is_download and api.break_off_bytes is not None and len(content) > api.break_off_bytes:
                    self.wfile.write(content[: api.break_off_bytes])
                    time.sleep(0.2)  # so that the other end reads it before the reset
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    self.connection.close()
                    self.close_connection = True
                    return
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        return Handler
