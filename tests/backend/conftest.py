"""Fixtures of the backend tests: a real application on a real, migrated database, SQLite or PostgreSQL.

``make test`` runs each test on SQLite, and on PostgreSQL those marked ``both_databases``: tests of locks, LISTEN and
migrations, and enough others to send nearly all of the backend's SQL statements. ``make databases`` runs the rest there.

The initial state of most tests (an owner; a node and a prepared dataset) is created once per session, through the
same routes, and its database and store are copied for each test.

The control loop does not run on its own here; tests that need it call it.
"""

import base64
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from pydantic import SecretStr
from sqlalchemy import select

from tests.backend.compiled_sql import share_compiled_sql
from tests.backend.datasets.row_jobs import run_next_job
from tests.built_commands import share_built_commands
from trainwright.contracts.agent_protocol import Timers
from trainwright_backend.api.site import STATIC_FOLDER
from trainwright_backend.core.db import Database
from trainwright_backend.core.settings import Settings
from trainwright_backend.datasets.job_queue import JobKind
from trainwright_backend.datasets.tables import DatasetVersion, ParsedFile, Preparation
from trainwright_backend.main import create_app
from trainwright_backend.maintenance.move_objects import Place, move_objects
from trainwright_backend.migrations.run import migrate
from trainwright_backend.teams import one_time_links

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


share_compiled_sql()
share_built_commands()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leave tests that do not depend on the database to ``make databases``, for PostgreSQL."""
    choices = (
        item.callspec.params.values()
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
        else ()
    )
    if "postgresql" in choices and item.get_closest_marker("both_databases") is None:
        item.add_marker(pytest.mark.slow(target="databases"))


@dataclass(frozen=True)
class Template:
    """A database to copy, by its path (SQLite) or name (PostgreSQL), with its store and known ids."""

    database: str
    objects: Path | None = None
    known: Mapping[str, str] = field(default_factory=dict)


Begin = Callable[[FastAPI], dict[str, str]]
"""Creates the initial state of tests through the application; returns its secrets and ids by name."""


class Templates:
    """Databases by initial state, each created once per session and then copied."""

    def __init__(self, folder: Path, built_app: FastAPI, begins: Mapping[str, Begin]) -> None:
        self._folder, self._app, self._begins = folder, built_app, begins
        self._made: dict[tuple[str, str], Template] = {}

    def get(self, stage: str, server: str = "") -> Template:
        """The template of a stage; ``server`` is the URL of a PostgreSQL, or empty for SQLite."""
        key = (stage, server)
        if key not in self._made:
            folder = Path(tempfile.mkdtemp(prefix=f"{stage}-", dir=self._folder))
            name = f"template_{uuid.uuid4().hex}" if server else str(folder / "template.sqlite3")
            if stage == "migrated":
                _create(server, name)
                _migrated(_url(server, name))
                self._made[key] = Template(name)
            else:
                _copy_database(server, self.get("migrated", server), name)
                settings = _settings(_url(server, name), folder)
                with running(self._app, settings):
                    known = self._begins[stage](self._app)
                self._made[key] = Template(name, settings.resolved_object_store_dir, known)
        return self._made[key]


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory, built_app: FastAPI) -> Templates:
    # These import this file.
    from tests.backend.scripted_agent import begin_scene

    return Templates(
        tmp_path_factory.mktemp("templates"), built_app, {"site": begin_site, "scene": begin_scene}
    )


@pytest.fixture
def stage(request: pytest.FixtureRequest) -> str:
    """The initial state of the database: that of the fixtures ``scene`` or ``site``."""
    return next((name for name in ("scene", "site") if name in request.fixturenames), "migrated")


@pytest.fixture
def known() -> dict[str, str]:
    """Secrets and ids of a copied database; empty for a database without rows."""
    return {}


@pytest.fixture
def sqlite_url(templates: Templates, stage: str, known: dict[str, str], tmp_path: Path) -> str:
    """SQLAlchemy URL of a SQLite database of the test's stage; its store is in ``tmp_path``."""
    return _copy("", templates.get(stage), str(tmp_path / "trainwright.sqlite3"), known, tmp_path)


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(
    request: pytest.FixtureRequest, templates: Templates, stage: str, known: dict[str, str], tmp_path: Path
) -> Iterator[str]:
    """SQLAlchemy URL of the test's database: migrated, or with the initial state of ``site`` or ``scene``.

    A file whose tests do not depend on the database overrides this with `sqlite_url`.
    """
    if request.param == "sqlite":
        yield request.getfixturevalue("sqlite_url")
        return
    server: str = request.getfixturevalue("postgres_url")
    name = f"test_{uuid.uuid4().hex}"
    yield _copy(server, templates.get(stage, server), name, known, tmp_path)
    with _postgres(server) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


both_stores = pytest.mark.parametrize("object_store", ["local", "s3"], indirect=True)
"""Runs a test with its objects in a local folder and in a bucket."""


also_in_bucket = pytest.mark.parametrize(
    "object_store", ["local", pytest.param("s3", marks=pytest.mark.slow(target="databases"))], indirect=True
)
"""Like ``both_stores``, but the bucket is left to ``make databases``."""


only_in_bucket = pytest.mark.parametrize(
    "object_store", [pytest.param("s3", marks=pytest.mark.slow(target="databases"))], indirect=True
)


def download(client: httpx.Client, link: str) -> httpx.Response:
    """GET of a signed link, and of the bucket that it may redirect to."""
    response = client.get(link, follow_redirects=False)
    return httpx.get(response.headers["Location"]) if response.is_redirect else response


@pytest.fixture
def object_store(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The settings of the test's object store: none for a local folder, or those of a new bucket."""
    if getattr(request, "param", "local") == "local":
        return {}
    return new_bucket(request.getfixturevalue("s3_endpoint"))


def new_bucket(endpoint: str) -> dict[str, Any]:
    """The settings of a new bucket."""
    bucket = f"test-{uuid.uuid4().hex}"
    httpx.put(f"{endpoint}/{bucket}", content=b"").raise_for_status()
    return {
        "object_store_url": f"s3://{bucket}/some/folder",
        "s3_endpoint": endpoint,
        "s3_access_key": "test-access-key",
        "s3_secret_key": "test-secret-key",
    }


@pytest.fixture
def settings(database_url: str, tmp_path: Path, object_store: dict[str, Any]) -> Settings:
    made = _settings(database_url, tmp_path, **object_store)
    if made.object_store_url is not None:
        move_objects(made, Place.S3, remove=True, tell=lambda done: None)
    return made


@pytest.fixture(scope="session")
def built_app() -> FastAPI:
    """The application, built once: its state differs from test to test."""
    return create_app(Settings(secret_key=SECRET, public_url="http://localhost", control_loop=False))


@pytest.fixture
def app(built_app: FastAPI, settings: Settings) -> Iterator[FastAPI]:
    """A running application."""
    with running(built_app, settings):
        yield built_app


@pytest.fixture
def database(app: FastAPI) -> Database:
    found: Database = app.state.database
    return found


@pytest.fixture
def anonymous(app: FastAPI) -> TestClient:
    """A browser that is not signed in."""
    return client_of(app)


@dataclass(frozen=True)
class Site:
    """An installation with its first owner, who can invite more people."""

    app: FastAPI
    admin: TestClient
    """The first owner: site admin, and owner of the team `acme`."""

    team: str = "acme"

    @property
    def path(self) -> str:
        """Address of the team's resources."""
        return f"/api/v1/teams/{self.team}"

    def anonymous(self) -> TestClient:
        return client_of(self.app)

    def member(self, role: str, team: str = "acme", email: str | None = None) -> TestClient:
        """A new member of a team, with an API key."""
        email = email or f"{role}@{team}.example"
        invitation = {"email": email, "role": role}
        response = self.admin.post(f"/api/v1/teams/{team}/invitations", json=invitation)
        assert response.status_code == 201, response.text
        newcomer = self.anonymous()
        token = response.json()["link"].rsplit("/", 1)[-1]
        account = {"token": token, "name": role.title(), "password": PASSWORD}
        assert newcomer.post("/api/v1/auth/link", json=account).status_code == 200
        return self.with_key(newcomer)

    def other_team(self, slug: str) -> TestClient:
        """The owner of another team."""
        made = self.admin.post("/api/v1/teams", json={"slug": slug, "name": slug.title()})
        assert made.status_code == 201, made.text
        return self.member("owner", slug)

    def with_key(self, signed_in: TestClient) -> TestClient:
        """The same person with an API key instead of a cookie."""
        made = signed_in.post("/api/v1/me/keys", json={"name": "test"})
        assert made.status_code == 201, made.text
        program = self.anonymous()
        program.headers["Authorization"] = f"Bearer {made.json()['secret']}"
        return program

    def prepare(self) -> None:
        """Run the jobs of all rows until nothing is left to do."""
        prepare_everything(self.app)


@pytest.fixture
def site(app: FastAPI, known: dict[str, str]) -> Site:
    return site_again(app, known or begin_site(app))


def begin_site(app: FastAPI) -> dict[str, str]:
    """Create the first owner of an installation; returns their API key."""
    newcomer = client_of(app)
    assert newcomer.post("/api/v1/auth/link", json=first_owner(app)).status_code == 200
    return {"key": Site(app, newcomer).with_key(newcomer).headers["Authorization"]}


def site_again(app: FastAPI, known: Mapping[str, str]) -> Site:
    """The installation of a copied database."""
    admin = client_of(app)
    admin.headers["Authorization"] = known["key"]
    return Site(app, admin)


def first_owner(app: FastAPI) -> dict[str, str]:
    """The first owner's request: a new link's token and their account."""
    with app.state.database.write() as session:
        url = one_time_links.first_owner_link(session, app.state.settings).url
    return {
        "token": url.rsplit("/", 1)[-1],
        "name": "Ada",
        "email": "ada@acme.example",
        "password": PASSWORD,
        "team": "acme",
    }


def prepare_everything(app: FastAPI) -> None:
    """Run the jobs that workers would run."""
    while any(run_next_job(app.state.database, app.state.store, *wanted) for wanted in _rows(app)):
        pass


def _rows(app: FastAPI) -> list[tuple[JobKind, uuid.UUID]]:
    with app.state.database.read() as session:
        return [
            (work, row_id)
            for work, table in (
                (JobKind.PARSE, ParsedFile),
                (JobKind.CURATE, DatasetVersion),
                (JobKind.PREPARE, Preparation),
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
    response = client.post(f"{team_path}/uploads", content=content, headers=headers)
    assert response.status_code == 201, response.text
    return response.headers["location"].rsplit("/", 1)[-1]


@pytest.fixture
def upload(site: Site) -> Callable[..., dict[str, Any]]:
    """Uploads a small dataset of the site's team and returns it; ``ready=True`` also prepares it."""
    return partial(upload_letters, site)


def upload_letters(
    site: Site,
    name: str = "letters",
    ready: bool = True,
    curation: dict[str, Any] | None = None,
    **files: bytes,
) -> dict[str, Any]:
    parts = files or {"letters.jsonl": b"".join(_line(n) for n in range(200))}
    uploads = [send_file(site.admin, site.path, *part) for part in parts.items()]
    new = {"name": name, "uploads": uploads, "curation": curation or {}}
    response = site.admin.post(f"{site.path}/datasets", json=new)
    assert response.status_code == 201, response.text
    if ready:
        site.prepare()
    shown: dict[str, Any] = site.admin.get(f"{site.path}/datasets/{response.json()['id']}").json()
    return shown


def _line(number: int) -> bytes:
    return b'{"text": "letter %d: %s"}\n' % (number, b"the quick brown fox jumps over the lazy dog " * 4)


def _settings(database_url: str, folder: Path, **object_store: Any) -> Settings:
    return Settings(
        **object_store,
        secret_key=SECRET,
        data_dir=folder,
        database_url=database_url,
        public_url="http://localhost",
        timers=TIMERS,
        control_loop=False,
        log_level="WARNING",
    )


@contextmanager
def running(app: FastAPI, settings: Settings) -> Iterator[None]:
    app.state.settings = settings
    app.state.static_folder = STATIC_FOLDER
    with TestClient(app, base_url="http://localhost") as client:
        app.state.portal = client.portal
        yield


def client_of(app: FastAPI) -> TestClient:
    """A client without credentials. Its requests share the application's event loop instead of starting one each."""
    client = TestClient(app, base_url="http://localhost")
    client.portal = app.state.portal
    return client


def _copy(server: str, template: Template, name: str, known: dict[str, str], folder: Path) -> str:
    """Copy a template's database and store; returns the URL of the copy."""
    _copy_database(server, template, name)
    if template.objects is not None:
        shutil.copytree(template.objects, folder / "objects")
    known.update(template.known)
    return _url(server, name)


def _copy_database(server: str, template: Template, name: str) -> None:
    if server:
        with _postgres(server) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template.database} STRATEGY FILE_COPY")
    else:
        shutil.copy(template.database, name)


def _create(server: str, name: str) -> None:
    if server:  # SQLite creates a missing file
        with _postgres(server) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE template0")


def _url(server: str, name: str) -> str:
    return server.replace("/postgres?", f"/{name}?") if server else f"sqlite:///{name}"


@contextmanager
def _postgres(url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        yield connection


def _migrated(url: str) -> None:
    database = Database(url)
    migrate(database)
    database.dispose()
