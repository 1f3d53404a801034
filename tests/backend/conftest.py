"""What backend tests stand on: a real application on a real, migrated database, SQLite and PostgreSQL in turn.

The control loop does not run by itself here; tests that need it call it.
"""

import base64
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from pydantic import SecretStr
from sqlalchemy import select

from trainwright.contracts.agent_protocol import Timers
from trainwright_backend.core.db import Database
from trainwright_backend.core.settings import Settings
from trainwright_backend.core.site import STATIC_FOLDER
from trainwright_backend.datasets.messages import Work
from trainwright_backend.datasets.tables import DatasetVersion, Preparation, Reading
from trainwright_backend.datasets.tasks import make_step
from trainwright_backend.main import create_app
from trainwright_backend.migrations.run import migrate
from trainwright_backend.teams import links

SECRET = SecretStr("the secret of these tests, long enough")
PASSWORD = "a long enough password"
TIMERS = Timers(
    heartbeat_seconds=0.5,
    renewal_seconds=0.5,
    lease_seconds=6.0,
    margin_seconds=1.5,
    grace_seconds=0.5,
    sweep_seconds=1.0,
    backoff_seconds=0.5,
)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file to copy."""
    path = tmp_path_factory.mktemp("template") / "template.sqlite3"
    _migrated(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def postgres_template(postgres_url: str) -> str:
    """Name of a migrated PostgreSQL database to copy."""
    name = f"template_{uuid.uuid4().hex}"
    with _postgres(postgres_url) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template0")
    _migrated(postgres_url.replace("/postgres?", f"/{name}?"))
    return name


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    """SQLAlchemy URL of a migrated SQLite database without rows."""
    path = tmp_path / "trainwright.sqlite3"
    shutil.copy(sqlite_template, path)
    return f"sqlite:///{path}"


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """SQLAlchemy URL of a migrated database without rows.

    A file whose tests say nothing about the database overrides this by `sqlite_url`.
    """
    if request.param == "sqlite":
        yield request.getfixturevalue("sqlite_url")
        return
    server: str = request.getfixturevalue("postgres_url")
    template: str = request.getfixturevalue("postgres_template")
    name = f"test_{uuid.uuid4().hex}"
    with _postgres(server) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")
        yield server.replace("/postgres?", f"/{name}?")
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> Settings:
    return Settings(
        secret_key=SECRET,
        data_dir=tmp_path,
        database_url=database_url,
        public_url="http://localhost",
        timers=TIMERS,
        control_loop=False,
        log_level="WARNING",
    )


@pytest.fixture(scope="session")
def built_app() -> FastAPI:
    """The application, built once: what differs from test to test is in its state."""
    return create_app(Settings(secret_key=SECRET, public_url="http://localhost", control_loop=False))


@pytest.fixture
def app(built_app: FastAPI, settings: Settings) -> Iterator[FastAPI]:
    """A running application."""
    built_app.state.settings = settings
    built_app.state.static_folder = STATIC_FOLDER
    with TestClient(built_app, base_url="http://localhost"):
        yield built_app


@pytest.fixture
def database(app: FastAPI) -> Database:
    found: Database = app.state.database
    return found


@pytest.fixture
def anonymous(app: FastAPI) -> TestClient:
    """A browser that is not signed in."""
    return TestClient(app, base_url="http://localhost")


@dataclass(frozen=True)
class Site:
    """An installation with its first owner, and ways to bring in more people."""

    app: FastAPI
    admin: TestClient
    """The first owner: site admin, and owner of the team `acme`."""

    team: str = "acme"

    @property
    def path(self) -> str:
        """Address of the team's resources."""
        return f"/api/v1/teams/{self.team}"

    def anonymous(self) -> TestClient:
        return TestClient(self.app, base_url="http://localhost")

    def member(self, role: str, team: str = "acme", email: str | None = None) -> TestClient:
        """Somebody new in a team; acts by an API key."""
        email = email or f"{role}@{team}.example"
        invitation = {"email": email, "role": role}
        answer = self.admin.post(f"/api/v1/teams/{team}/invitations", json=invitation)
        assert answer.status_code == 201, answer.text
        newcomer = self.anonymous()
        token = answer.json()["link"].rsplit("/", 1)[-1]
        account = {"token": token, "name": role.title(), "password": PASSWORD}
        assert newcomer.post("/api/v1/auth/link", json=account).status_code == 200
        return self.with_key(newcomer)

    def other_team(self, slug: str) -> TestClient:
        """The owner, who is nobody else, of another team."""
        made = self.admin.post("/api/v1/teams", json={"slug": slug, "name": slug.title()})
        assert made.status_code == 201, made.text
        return self.member("owner", slug)

    def with_key(self, signed_in: TestClient) -> TestClient:
        """The same person by an API key instead of a cookie."""
        made = signed_in.post("/api/v1/me/keys", json={"name": "test"})
        assert made.status_code == 201, made.text
        program = self.anonymous()
        program.headers["Authorization"] = f"Bearer {made.json()['secret']}"
        return program

    def prepare(self) -> None:
        """Read, survey and prepare until nothing is left to do."""
        prepare_everything(self.app)


@pytest.fixture
def site(app: FastAPI) -> Site:
    newcomer = TestClient(app, base_url="http://localhost")
    assert newcomer.post("/api/v1/auth/link", json=first_owner(app)).status_code == 200
    bare = Site(app, newcomer)
    return Site(app, bare.with_key(newcomer))


def first_owner(app: FastAPI) -> dict[str, str]:
    """What the first owner sends: a fresh link's token and their account."""
    with app.state.database.write() as session:
        url = links.first_owner_link(session, app.state.settings).url
    return {
        "token": url.rsplit("/", 1)[-1],
        "name": "Ada",
        "email": "ada@acme.example",
        "password": PASSWORD,
        "team": "acme",
    }


def prepare_everything(app: FastAPI) -> None:
    """What workers would do with the messages that were sent."""
    while any(make_step(app.state.database, app.state.store, *wanted) for wanted in _rows(app)):
        pass


def _rows(app: FastAPI) -> list[tuple[Work, uuid.UUID]]:
    with app.state.database.read() as session:
        return [
            (work, row_id)
            for work, table in (
                (Work.READ, Reading),
                (Work.SURVEY, DatasetVersion),
                (Work.PREPARE, Preparation),
            )
            for row_id in session.scalars(select(table.id).order_by(table.id))
        ]


def send_file(client: TestClient, team_path: str, name: str, content: bytes) -> str:
    """Upload a file by tus in one request; returns the upload's id."""
    headers = {
        "Tus-Resumable": "1.0.0",
        "Upload-Length": str(len(content)),
        "Upload-Metadata": f"filename {base64.b64encode(name.encode()).decode()}",
        "Content-Type": "application/offset+octet-stream",
    }
    answer = client.post(f"{team_path}/uploads", content=content, headers=headers)
    assert answer.status_code == 201, answer.text
    return answer.headers["location"].rsplit("/", 1)[-1]


@pytest.fixture
def upload(site: Site) -> Callable[..., dict[str, Any]]:
    """Uploads a small dataset of the site's team and returns it; ``ready=True`` also prepares it."""

    def send(
        name: str = "letters", ready: bool = True, recipe: dict[str, Any] | None = None, **files: bytes
    ) -> dict[str, Any]:
        parts = files or {"letters.jsonl": b"".join(_line(n) for n in range(200))}
        uploads = [send_file(site.admin, site.path, *part) for part in parts.items()]
        new = {"name": name, "uploads": uploads, "recipe": recipe or {}}
        answer = site.admin.post(f"{site.path}/datasets", json=new)
        assert answer.status_code == 201, answer.text
        if ready:
            site.prepare()
        shown: dict[str, Any] = site.admin.get(f"{site.path}/datasets/{answer.json()['id']}").json()
        return shown

    return send


def _line(number: int) -> bytes:
    return b'{"text": "letter %d: %s"}\n' % (number, b"the quick brown fox jumps over the lazy dog " * 4)


@contextmanager
def _postgres(url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        yield connection


def _migrated(url: str) -> None:
    database = Database(url)
    migrate(database)
    database.dispose()
