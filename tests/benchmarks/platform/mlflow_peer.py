"""MLflow's tracking server as a peer: its REST routes for batches, with their maximum of a thousand metrics, and for searching runs."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.harness.peer_venv import peers_python
from tests.benchmarks.platform.server import Caller
from trainwright_backend.local.platform import terminate

START_SECONDS = 120.0
BATCH_POINTS = 1_000
SERIES = 20


@dataclass(frozen=True)
class Mlflow:
    """A running server."""

    url: str
    store: str
    """SQLAlchemy URL of its database."""

    batches: int

    def rate(self) -> float:
        """Points a second that one client stores, batch after batch, in a new run."""
        caller = Caller(self.url)
        run = caller.post("/api/2.0/mlflow/runs/create", {"experiment_id": "0", "start_time": 0})
        run_id = run["run"]["info"]["run_id"]
        bodies = [self._body(run_id, number) for number in range(self.batches)]
        started = time.perf_counter()
        for body in bodies:
            caller.ask("POST", "/api/2.0/mlflow/runs/log-batch", body)
        return self.batches * BATCH_POINTS / (time.perf_counter() - started)

    def _body(self, run_id: str, number: int) -> bytes:
        first = number * BATCH_POINTS // SERIES
        metrics = [
            {"key": f"s{n}", "value": 0.123456789 * n, "timestamp": step, "step": step}
            for step in range(first, first + BATCH_POINTS // SERIES)
            for n in range(SERIES)
        ]
        return json.dumps({"run_id": run_id, "metrics": metrics}).encode()


@contextmanager
def running_mlflow(folder: Path, toy: bool, store: str | None = None, workers: int = 1) -> Iterator[Mlflow]:
    """A server on SQLite, its default, or on the database ``store``, with one worker like ours or with as many as ours has processes.

    Raises:
        RefusedError: MLflow is not installed.
    """
    python = peers_python(create=not toy)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    store = store or f"sqlite:///{folder / 'mlflow.sqlite3'}"
    address = ["--host", "127.0.0.1", "--port", str(port), "--workers", str(workers)]
    places = ["--backend-store-uri", store, "--default-artifact-root", str(folder / "mlflow-artifacts")]
    with (folder / "mlflow.log").open("wb") as log:
        server = subprocess.Popen(
            [python, "-m", "mlflow", "server", *address, *places],
            stdout=log,
            stderr=log,
            env=dict(os.environ) | {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"},
            start_new_session=True,
        )
    try:
        _wait_for(port, server, folder / "mlflow.log")
        yield Mlflow(f"http://127.0.0.1:{port}", store, 3 if toy else 20)
    finally:
        terminate(server)


def _wait_for(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            Caller(f"http://127.0.0.1:{port}").ask("GET", "/health")
            return
        except OSError:
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"MLflow did not start:\n{log.read_text()[-2000:]}") from None
            time.sleep(0.2)
