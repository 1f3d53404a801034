"""A support bundle: what others need to find out what is wrong with an installation, without its secrets.

The installation may be broken, so a section that cannot be collected contains the reason instead. The bundle has no data, specs or
training metrics of users. Messages of failed attempts and logs may contain names; all text is masked (`masking`).
"""

import io
import json
import os
import platform
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import httpx
from pydantic import SecretStr
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from trainwright.contracts.end_codes import sentence
from trainwright_backend.attempts.retry_policy import PLANNED_ENDS
from trainwright_backend.core.db import Database, Read, now
from trainwright_backend.core.errors import AppError
from trainwright_backend.core.ids import public_id
from trainwright_backend.core.settings import Settings, setting_variables
from trainwright_backend.maintenance.database_copy import list_tables
from trainwright_backend.maintenance.masking import Masker, own_hosts, secret_values, without_credentials
from trainwright_backend.migrations.run import is_migrated, revision_of
from trainwright_backend.monitoring.exposition import state_text
from trainwright_backend.monitoring.platform_state import read_platform_state
from trainwright_backend.nodes.service import list_nodes
from trainwright_backend.runs.attempts import nodes_by_fence
from trainwright_backend.runs.tables import Attempt, RunEvent

PACKAGES = (
    *("trainwright", "fastapi", "uvicorn", "pydantic", "sqlalchemy", "alembic", "psycopg", "celery", "redis"),
    *("obstore", "pyarrow", "tokenizers", "torch", "deepspeed", "prometheus-client"),
)
FAILED_ATTEMPTS = 50
HEALTH_SECONDS = 5.0
LOG_BYTES = 8 << 20
"""The most bytes that are read from the end of a log."""


@dataclass(frozen=True)
class Configuration:
    """The settings of an installation."""

    settings: Settings
    variables: Mapping[str, str]
    """The variables of the environment that they come from."""

    origin: str
    """Whose environment that is, as text for people."""


Section = Callable[[], object]


def write_support_bundle(
    configuration: Configuration, database: Database, file: Path, lines: int, logs: Sequence[Path] = ()
) -> None:
    """Write a bundle that only its owner can read.

    Args:
        file: a ``.tar.gz``, which must not exist.
        lines: of each log, from its end.
        logs: more logs than those in the data folder.

    Raises:
        FileExistsError: ``file`` exists.
    """
    settings = configuration.settings
    masker = Masker(secret_values(settings, {**os.environ, **configuration.variables}), own_hosts(settings))
    sections: dict[str, Section] = {
        "about.json": _about,
        "settings.json": lambda: _settings(configuration),
        "health.json": lambda: _health(settings),
        "migrations.json": lambda: _migrations(database),
        "tables.json": lambda: _tables(database),
        "state.txt": lambda: _state(database, settings),
        "nodes.json": lambda: _nodes(database, settings),
        "failed-attempts.json": lambda: _failed_attempts(database),
    }
    for number, log in enumerate([*sorted((settings.data_dir / "logs").glob("*.log")), *logs]):
        sections[f"logs/{number}-{log.name}"] = partial(end_of_log, log, lines)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as out, tarfile.open(fileobj=out, mode="w:gz") as bundle:
        for name, collect in sections.items():
            _add(bundle, masker.text(name), _collected(collect, masker))


def end_of_log(log: Path, lines: int) -> str:
    """The last lines of a log. The first one is whole: a part of a secret is not recognized by its shape."""
    with log.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        start = max(size - LOG_BYTES, 0)
        file.seek(start)
        content = file.read(LOG_BYTES)
    if start:
        content = content.partition(b"\n")[2]
    return "\n".join(content.decode(errors="replace").splitlines()[-lines:]) + "\n"


def _collected(collect: Section, masker: Masker) -> str:
    """A section as masked text. Why it could not be collected, if it could not."""
    try:
        found = collect()
    except (AppError, SQLAlchemyError, OSError, httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        # ValueError: rows that another version wrote and this one cannot read.
        found = {"error": f"{type(error).__name__}: {error}"}
    if isinstance(found, str):
        return masker.text(found)
    return json.dumps(masker.data(found), indent=2, default=str) + "\n"


def _add(bundle: tarfile.TarFile, name: str, text: str) -> None:
    content = text.encode()
    member = tarfile.TarInfo(f"trainwright-support/{name}")
    member.size, member.mode, member.mtime = len(content), 0o600, int(time.time())
    bundle.addfile(member, io.BytesIO(content))


def _about() -> dict[str, Any]:
    return {
        "made": now().isoformat(),
        "python": sys.version,
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "packages": dict(_versions()),
    }


def _versions() -> Iterator[tuple[str, str]]:
    for name in PACKAGES:
        try:
            yield name, version(name)
        except PackageNotFoundError:
            yield name, "not installed"


def _settings(configuration: Configuration) -> dict[str, Any]:
    """The settings by name. Of secrets only whether they are set; addresses without credentials."""
    settings = configuration.settings
    shown: dict[str, Any] = {}
    values = settings.model_dump(mode="json")
    for name, field in Settings.model_fields.items():
        value = getattr(settings, name)
        if SecretStr.__name__ in str(field.annotation) or isinstance(value, SecretStr):
            shown[name] = "set" if value is not None else "not set"
        else:
            shown[name] = (
                without_credentials(value) if isinstance(value, str) and "://" in value else values[name]
            )
    variables = sorted(setting_variables(configuration.variables))
    return {"settings_of": configuration.origin, "settings": shown, "variables_set": variables}


@contextmanager
def _reading(database: Database) -> Iterator[Read]:
    """A session of a database that exists; opening one would create the file of an SQLite database."""
    if database.is_missing:
        raise FileNotFoundError(f"there is no database {database.file}")
    with database.read() as session:
        yield session


def _health(settings: Settings) -> dict[str, Any]:
    """What the API answers at its public address."""
    address = f"{settings.public_url.rstrip('/')}/api/v1/health"
    response = httpx.get(address, timeout=HEALTH_SECONDS)
    return {
        "address": without_credentials(address),
        "status": response.status_code,
        "response": response.text[:10_000],
    }


def _migrations(database: Database) -> dict[str, Any]:
    with _reading(database) as session:
        revision = revision_of(session)
    engine = database.engine.dialect
    return {"database": engine.name, "revision": revision, "is_of_this_version": is_migrated(database)}


def _tables(database: Database) -> dict[str, int]:
    """Rows by table."""
    with _reading(database) as session:
        return {table.name: table.rows for table in list_tables(session)}


def _state(database: Database, settings: Settings) -> str:
    """The platform's part of `/metrics`."""
    with _reading(database) as session:
        return state_text(read_platform_state(session, settings.timers))


def _nodes(database: Database, settings: Settings) -> list[dict[str, Any]]:
    """The nodes without the names of the runs on them."""
    with _reading(database) as session:
        shown = [node.model_dump(mode="json") for node in list_nodes(session, settings.timers)]
    for node in shown:
        node["runs"] = [
            {name: run[name] for name in ("run", "device", "slots", "state")} for run in node["runs"]
        ]
    return shown


def _failed_attempts(database: Database) -> list[dict[str, Any]]:
    """The attempts that failed last, newest first, with what their nodes reported."""
    with _reading(database) as session:
        failed = select(Attempt).where(Attempt.ended.is_not(None), Attempt.reason.not_in(PLANNED_ENDS))
        attempts = session.scalars(failed.order_by(Attempt.ended.desc()).limit(FAILED_ATTEMPTS)).all()
        nodes = nodes_by_fence(session, [attempt.run_id for attempt in attempts])
        return [
            {
                "run": public_id("run", attempt.run_id),
                "attempt": attempt.number,
                "nodes": nodes.get((attempt.run_id, attempt.fence), []),
                "started": _iso(attempt.started),
                "ended": _iso(attempt.ended),
                "resume_step": attempt.resume_step,
                "code": attempt.reason,
                "meaning": None if attempt.reason is None else sentence(attempt.reason),
                "messages": list(
                    dict.fromkeys(
                        session.scalars(
                            select(RunEvent.message)
                            .where(RunEvent.run_id == attempt.run_id, RunEvent.attempt == attempt.number)
                            .where(RunEvent.reason.not_in(PLANNED_ENDS))
                            .order_by(RunEvent.sequence)
                        )
                    )
                ),
            }
            for attempt in attempts
        ]


def _iso(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()
