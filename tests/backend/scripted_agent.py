"""Agent, supervisor and trainer in one object that a test controls; it uses the real HTTP routes."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from httpx import Response
from sqlalchemy import func, select, update

from tests.backend.conftest import Site, begin_site, site_again, upload_letters
from trainwright.contracts.agent_protocol import Claim
from trainwright.contracts.checkpoint import CheckpointKind, CheckpointManifest, FileEntry, digest_of
from trainwright.contracts.run_state import WITHOUT_TRAINER, RunState
from trainwright_backend.control.loop import ControlLoop
from trainwright_backend.core.db import Database, now
from trainwright_backend.core.ids import parse_id
from trainwright_backend.core.settings import Settings
from trainwright_backend.nodes.tables import Node
from trainwright_backend.runs.tables import Placement, PlacementSlot, Run, RunEvent
from trainwright_backend.runs.transitions import ReplayedRun, fold
from trainwright_backend.teams.tables import LedgerEntry, Quota

TIME = "2026-01-01T00:00:00Z"


class Clock:
    """The reaper's clock, moved by the test."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def __call__(self) -> float:
        return self.seconds


class Control:
    """The control loop of an application, one round at a time."""

    def __init__(self, app: FastAPI) -> None:
        self.clock = Clock()
        self._app = app
        self.loop = ControlLoop(app.state.database, app.state.settings, app.state.store, self.clock)

    def sweep(self) -> None:
        self.loop.run_round(sweep=True)

    def let_pass(self, seconds: float) -> None:
        """Advance the clock by ``seconds``, sweeping on time."""
        period = self._app.state.settings.timers.sweep_seconds
        for _ in range(int(seconds / period) + 1):
            self.clock.seconds += period
            self.sweep()


@dataclass
class Agent:
    """The agent of one node."""

    client: TestClient
    name: str

    @classmethod
    def join(
        cls,
        site: Site,
        name: str = "node-a",
        cpu_slots: int = 2,
        gpus: int = 0,
        reported: dict[str, Any] | None = None,
    ) -> "Agent":
        made = site.admin.post("/api/v1/join-tokens", json={"name": name})
        assert made.status_code == 201, made.text
        client = site.anonymous()
        body = {
            "token": made.json()["token"],
            "name": name,
            "inventory": inventory(cpu_slots, gpus) | (reported or {}),
        }
        joined = client.post("/api/v1/agent/join", json=body)
        assert joined.status_code == 200, joined.text
        client.headers["Authorization"] = f"Bearer {joined.json()['node_token']}"
        agent = cls(client, name)
        agent.heartbeat()
        return agent

    def heartbeat(self, **fields: Any) -> list[dict[str, Any]]:
        response = self.client.post("/api/v1/agent/heartbeat", json=fields)
        assert response.status_code == 200, response.text
        placements: list[dict[str, Any]] = response.json()["placements"]
        return placements

    def try_claim(self, run_id: str, claim_id: str | None = None) -> Response:
        return self.post(run_id, "claim", {"claim_id": claim_id or uuid4().hex})

    def claim(self, run_id: str, claim_id: str | None = None) -> "Work":
        response = self.try_claim(run_id, claim_id)
        assert response.status_code == 200, response.text
        return Work(self, run_id, Claim.model_validate(response.json()))

    def post(self, run_id: str, what: str, body: dict[str, Any]) -> Response:
        return self.client.post(f"/api/v1/agent/runs/{run_id}/{what}", json=body)


@dataclass
class Work:
    """One attempt on a node: the requests of its supervisor and its trainer."""

    agent: Agent
    run_id: str
    claim: Claim
    offset: int = 0
    logs: dict[str, int] = field(default_factory=dict)

    def renew(self, phase: str = "starting", **fields: Any) -> Response:
        body = {"claim_id": self.claim.claim_id, "fence": self.claim.fence, "phase": phase, **fields}
        return self.agent.post(self.run_id, "renew", body)

    def order(self, phase: str = "starting", **fields: Any) -> str:
        response = self.renew(phase, **fields)
        assert response.status_code == 200, response.text
        order: str = response.json()["order"]
        return order

    def batch(
        self, events: Sequence[dict[str, Any]] = (), metrics: Sequence[dict[str, Any]] = ()
    ) -> dict[str, Any]:
        """The next batch; its length in bytes is that of its content."""
        size = 100 * len(events) + 50 * sum(len(block["steps"]) for block in metrics)
        lines = [
            {"time": TIME, "end_offset": self.offset + 100 * (n + 1), **event}
            for n, event in enumerate(events)
        ]
        return {
            "fence": self.claim.fence,
            "attempt": self.claim.attempt,
            "offset": self.offset,
            "next_offset": self.offset + size,
            "events": lines,
            "metrics": list(metrics),
        }

    def send(self, batch: dict[str, Any]) -> Response:
        response = self.agent.post(self.run_id, "batches", batch)
        if response.status_code == 200:
            self.offset = response.json()["offset"]
        return response

    def begin(self, resume_step: int = 0) -> None:
        started = {"type": "attempt_started", "attempt": self.claim.attempt, "resume_step": resume_step}
        started |= {"ranks": 2, "parameters": 1_234, "device": "a CPU"}
        response = self.send(self.batch([started]))
        assert response.status_code == 200, response.text

    def step(self, first: int, last: int, scale: float = 1.0) -> None:
        """Send metrics of the steps ``first`` to ``last``."""
        response = self.send(self.batch(metrics=[losses(first, last, scale)]))
        assert response.status_code == 200, response.text

    def log(self, content: bytes, file: str = "rank-0.log", offset: int | None = None) -> Response:
        at = self.logs.get(file, 0) if offset is None else offset
        query = f"attempt={self.claim.attempt}&fence={self.claim.fence}&offset={at}"
        response = self.agent.client.post(
            f"/api/v1/agent/runs/{self.run_id}/logs/{file}?{query}",
            content=content,
            headers={"Content-Type": "application/octet-stream"},
        )
        if response.status_code == 200:
            self.logs[file] = response.json()["offset"]
        return response

    def announce(self, upload: "Upload") -> Response:
        body = {
            "fence": self.claim.fence,
            "kind": upload.kind.value,
            "step": upload.step,
            "files": [entry.model_dump() for entry in upload.entries],
        }
        return self.agent.post(self.run_id, "uploads", body)

    def put(self, upload: "Upload") -> None:
        """Announce and send what is missing."""
        response = self.announce(upload)
        assert response.status_code == 200, response.text
        for link in response.json()["links"]:
            sent = self.agent.client.put(link["url"], content=upload.files[link["name"]])
            assert sent.status_code == 204, sent.text

    def commit(self, upload: "Upload", events_offset: int | None = None) -> Response:
        if events_offset is None:
            events_offset = self.offset if upload.kind is CheckpointKind.STATE else 0
        body = {
            "fence": self.claim.fence,
            "kind": upload.kind.value,
            "step": upload.step,
            "manifest_digest": upload.digest,
            "events_offset": events_offset,
        }
        return self.agent.post(self.run_id, "checkpoints", body)

    def save(self, step: int, kind: str = "state") -> "Upload":
        """Make, announce, send and commit a checkpoint."""
        upload = Upload.make(step, kind)
        self.put(upload)
        response = self.commit(upload)
        assert response.status_code == 200, response.text
        return upload

    def end(self, code: str, message: str = "", **fields: Any) -> Response:
        offsets = {"events.jsonl": self.offset} | self.logs
        optional = {name: fields.pop(name, None) for name in ("step", "sequences_read")}
        exit = {"code": code, "message": message or code} | optional
        body = {"claim_id": self.claim.claim_id, "fence": self.claim.fence, "exit": exit, "offsets": offsets}
        return self.agent.post(self.run_id, "end", body | fields)

    def ended(self, code: str, message: str = "", **fields: Any) -> str:
        """Report the end; returns the run's new state."""
        response = self.end(code, message, **fields)
        assert response.status_code == 200, response.text
        state: str = response.json()["state"]
        return state

    def finish(self, steps: int) -> str:
        """The rest of a successful run."""
        assert self.order("starting") == "go"
        resume_step = self.claim.job.resume.step if self.claim.job.resume else 0
        self.begin(resume_step)
        assert self.order("running") == "go"
        if resume_step < steps:
            self.step(resume_step + 1, steps)
            self.save(steps)
        assert self.order("completing") == "go"
        self.save(steps, "export")
        return self.ended("finished", step=steps)


@dataclass(frozen=True)
class Upload:
    """A checkpoint's files."""

    kind: CheckpointKind
    step: int
    files: dict[str, bytes]
    digest: str

    @classmethod
    def make(cls, step: int, kind: str = "state", salt: str = "") -> "Upload":
        shards = {f"part-{n}.safetensors": f"{kind} {step} {n} {salt}".encode() * 40 for n in range(2)}
        manifest = CheckpointManifest(
            kind=CheckpointKind(kind),
            step=step,
            files=[entry_of(name, content) for name, content in shards.items()],
            config_digest="0" * 64,
            code_version="test",
        ).to_bytes()
        return cls(CheckpointKind(kind), step, {**shards, "manifest.json": manifest}, digest_of(manifest))

    @property
    def entries(self) -> list[FileEntry]:
        return [entry_of(name, content) for name, content in self.files.items()]


def entry_of(name: str, content: bytes) -> FileEntry:
    return FileEntry(name=name, bytes=len(content), digest=hashlib.sha256(content).hexdigest())


def losses(first: int, last: int, scale: float = 1.0) -> dict[str, Any]:
    """A block of metrics whose values encode their step."""
    steps = list(range(first, last + 1))
    return {
        "steps": steps,
        "series": {"loss": [scale / s for s in steps], "tokens": [10.0 * s for s in steps]},
    }


def inventory(cpu_slots: int = 2, gpus: int = 0) -> dict[str, Any]:
    return {
        "hostname": "machine",
        "os": "Linux",
        "cores": 8,
        "memory_bytes": 1 << 34,
        "gpus": [{"index": n, "name": "NVIDIA H200", "memory_bytes": 1 << 37} for n in range(gpus)],
        "cpu_name": "a CPU",
        "cpu_slots": cpu_slots,
        "cpu_peak": {"fp32": 1e11, "bf16": 4e11},
    }


def stream_events(text: str) -> list[dict[str, Any]]:
    """Server-sent events as dicts of id, event and parsed data."""
    events = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if line and not line.startswith(":"))
        if "data" in fields:
            events.append({**fields, "data": json.loads(fields["data"])})
    return events


@dataclass
class Scene:
    """An installation with one node of two CPU slots and a prepared dataset."""

    site: Site
    control: Control
    agent: Agent
    dataset: str

    @property
    def runs(self) -> str:
        return f"{self.site.path}/runs"

    @property
    def database(self) -> Database:
        found: Database = self.site.app.state.database
        return found

    def spec(self, slots: int = 1, steps: int = 10, **sections: Any) -> dict[str, Any]:
        return {
            "name": "pilot",
            "data": {"dataset": self.dataset, "tokenizer": {"kind": "bytes"}},
            "schedule": {"steps": steps, "warmup_steps": 0},
            "resources": {"device": "cpu", "slots_per_node": slots},
        } | sections

    def submit(self, slots: int = 1, **sections: Any) -> str:
        response = self.site.admin.post(self.runs, json=self.spec(slots, **sections))
        assert response.status_code == 201, response.text
        run_id: str = response.json()["id"]
        return run_id

    def start(self, slots: int = 1, **sections: Any) -> Work:
        """A run that is claimed."""
        run_id = self.submit(slots, **sections)
        self.control.sweep()
        return self.agent.claim(run_id)

    def running(self, slots: int = 1, last_step: int = 3, **sections: Any) -> Work:
        """A run that has made some steps."""
        work = self.start(slots, **sections)
        assert work.order("starting") == "go"
        work.begin(work.claim.job.resume.step if work.claim.job.resume else 0)
        assert work.order("running") == "go"
        work.step(1, last_step)
        return work

    def again(self, run_id: str) -> Work:
        """The next attempt of a run that is waiting for its retry."""
        self.end_backoff(run_id)
        self.control.sweep()
        return self.agent.claim(run_id)

    def end_backoff(self, run_id: str) -> None:
        """End the back-off, and release nodes from quarantine as if they had passed their self-tests."""
        with self.database.write() as session:
            session.execute(update(Node).values(quarantined=None))
            session.get_one(Run, parse_id("run", run_id)).retry_at = now()

    def show(self, run_id: str) -> dict[str, Any]:
        response = self.site.admin.get(f"{self.runs}/{run_id}")
        assert response.status_code == 200, response.text
        shown: dict[str, Any] = response.json()
        return shown

    def state(self, run_id: str) -> str:
        state: str = self.show(run_id)["state"]
        return state

    def cancel(self, run_id: str) -> Response:
        return self.site.admin.post(f"{self.runs}/{run_id}/cancel")

    def used(self, device: str = "cpu") -> int:
        quota = self.site.admin.get(self.site.path).json()["quota"]
        return sum(entry["used"] for entry in quota if entry["device"] == device)

    def check_invariants(self) -> None:
        """Invariants between any two messages: the row is the fold of its events; the occupied slots are the quota and the ledger's sum."""
        with self.database.read() as session:
            held: dict[tuple[UUID, str], int] = {}
            for run in session.scalars(select(Run)).all():
                events = session.scalars(
                    select(RunEvent).where(RunEvent.run_id == run.id).order_by(RunEvent.sequence)
                ).all()
                assert [event.sequence for event in events] == list(range(1, run.event_sequence + 1))
                row = ReplayedRun(run.state, run.verdict, run.reason, run.fence, run.attempt, run.message)
                assert fold(events) == row
                occupied = select(PlacementSlot).join(Placement).where(Placement.run_id == run.id)
                if slots := len(session.scalars(occupied).all()):
                    assert slots == run.slots
                    key = (run.team_id, run.device)
                    held[key] = held.get(key, 0) + slots
                    waits = run.state in WITHOUT_TRAINER and run.state is not RunState.QUEUED
                    assert not waits, "a run without a trainer has slots"
            for quota in session.scalars(select(Quota)).all():
                assert quota.used == held.get((quota.team_id, quota.device), 0) <= quota.slots_limit
                entries = select(func.sum(LedgerEntry.slots)).where(
                    LedgerEntry.team_id == quota.team_id, LedgerEntry.device == quota.device
                )
                assert quota.used == (session.scalar(entries) or 0)


@pytest.fixture
def patient_settings(settings: Settings) -> Settings:
    return patient(settings)


def patient(settings: Settings) -> Settings:
    """A slow test machine must not make nodes look offline."""
    timers = settings.timers.model_copy(update={"heartbeat_seconds": 100.0})
    return settings.model_copy(update={"timers": timers})


@pytest.fixture
def scene(site: Site, known: dict[str, str]) -> Iterator[Scene]:
    """A scene whose invariants are checked at the end of the test."""
    found = _scene_again(site, known if "dataset" in known else begin_scene(site.app, site))
    found.agent.heartbeat()
    yield found
    found.check_invariants()


def begin_scene(app: FastAPI, site: Site | None = None) -> dict[str, str]:
    """Create the contents of a scene; returns what `_scene_again` needs."""
    state = begin_site(app) if site is None else {"key": site.admin.headers["Authorization"]}
    site = site_again(app, state)
    dataset = upload_letters(site, ready=False)
    agent = Agent.join(site)
    known = {**state, "dataset": str(dataset["id"]), "node": agent.client.headers["Authorization"]}
    found = _scene_again(site, known)
    first = found.submit()  # creates the preparation for these settings
    site.prepare()
    assert found.cancel(first).status_code == 202
    assert site.admin.delete(f"{found.runs}/{first}").status_code == 200
    return known


def _scene_again(site: Site, known: Mapping[str, str]) -> Scene:
    client = site.anonymous()
    client.headers["Authorization"] = known["node"]
    return Scene(site, Control(site.app), Agent(client, "node-a"), known["dataset"])
