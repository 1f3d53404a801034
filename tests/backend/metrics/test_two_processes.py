"""Two API processes on one PostgreSQL: a point posted to one reaches a stream of the other immediately."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from typing import BinaryIO

import pytest
import uvicorn
from fastapi import FastAPI

from tests.backend.conftest import SECRET
from tests.backend.scripted_agent import Scene, losses
from trainwright_backend.core import sse
from trainwright_backend.core.db import Database
from trainwright_backend.local.platform import bind_socket, terminate
from trainwright_backend.migrations.run import migrate

POINTS = 15


@pytest.fixture
def database_url(fresh_postgres_database: str) -> str:
    database = Database(fresh_postgres_database)
    migrate(database)
    database.dispose()
    return fresh_postgres_database


@contextmanager
def this_process(app: FastAPI) -> Iterator[tuple[str, int]]:
    listener = bind_socket("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        yield listener.getsockname()
    finally:
        server.should_exit = server.force_exit = True
        thread.join()


@contextmanager
def other_process(database_url: str, folder: Path) -> Iterator[tuple[str, int]]:
    listener = bind_socket("127.0.0.1", 0)
    environment = {
        "TRAINWRIGHT_SECRET_KEY": SECRET.get_secret_value(),
        "TRAINWRIGHT_DATABASE_URL": database_url,
        "TRAINWRIGHT_DATA_DIR": str(folder / "other"),
        "TRAINWRIGHT_CONTROL_LOOP": "false",
        "TRAINWRIGHT_LOG_LEVEL": "WARNING",
    }
    command = [sys.executable, "-m", "trainwright_backend.cli", "serve", "--fd", str(listener.fileno())]
    server = subprocess.Popen(command, env=dict(os.environ) | environment, pass_fds=(listener.fileno(),))
    try:
        yield listener.getsockname()
    finally:
        terminate(server)
        listener.close()


@pytest.mark.slow(target="databases")
def test_a_point_posted_to_one_process_reaches_a_stream_of_the_other(
    scene: Scene, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream polls only once a minute, so anything that arrives sooner was notified."""
    work = scene.running(last_step=1, steps=100)
    monkeypatch.setattr(sse, "POLL_SECONDS", 60.0)
    monkeypatch.setattr(sse, "RIGHTS_SECONDS", 60.0)
    lags = []
    with other_process(database_url, tmp_path) as other, this_process(scene.site.app) as here:
        reader = _stream(here, f"{scene.runs}/{work.run_id}/metrics/stream", scene)
        assert _next_steps(reader) == [1]
        to_other = HTTPConnection(*other, timeout=60)
        path = f"/api/v1/agent/runs/{work.run_id}/batches"
        headers = {"Authorization": work.agent.client.headers["Authorization"]}
        headers["Content-Type"] = "application/json"
        for step in range(2, 2 + POINTS):
            batch = work.batch(metrics=[losses(step, step)])
            started = time.monotonic()
            to_other.request("POST", path, json.dumps(batch), headers)
            response = to_other.getresponse()
            assert response.status == 200, response.read()
            work.offset = json.loads(response.read())["offset"]
            assert _next_steps(reader) == [step]
            lags.append(time.monotonic() - started)
        reader.close()
    print(f"\nfrom post to stream: {median(lags[1:]) * 1_000:.0f} ms (median)")


def _stream(address: tuple[str, int], path: str, scene: Scene) -> BinaryIO:
    connection = socket.create_connection(address, timeout=30)
    key = scene.site.admin.headers["Authorization"]
    connection.sendall(f"GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\nAuthorization: {key}\r\n\r\n".encode())
    return connection.makefile("rb")


def _next_steps(reader: BinaryIO) -> list[int]:
    while line := reader.readline():
        if line.startswith(b"data: "):
            steps: list[int] = json.loads(line[6:])["steps"]
            return steps
    raise AssertionError("the stream ended")
