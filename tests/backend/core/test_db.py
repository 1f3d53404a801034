"""Transactions are atomic and commit before the response; a busy database is a 503."""

import sqlite3
import threading
from datetime import UTC, datetime, timedelta, timezone
from math import isnan

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import JSON, event, insert, select, text, update
from sqlalchemy.exc import DBAPIError

from tests.backend.conftest import Site
from trainwright_backend.auth.tables import Account, Team
from trainwright_backend.core import db
from trainwright_backend.core.db import Database, Write
from trainwright_backend.core.errors import Busy
from trainwright_backend.core.settings import Settings

pytestmark = pytest.mark.both_databases


def test_a_commit_that_fails_gives_5xx_and_stores_nothing(site: Site, database: Database) -> None:
    def fail(session: Write) -> None:
        raise RuntimeError("the disk is gone")

    event.listen(Write, "before_commit", fail)
    try:
        response = site.admin.post("/api/v1/teams", json={"slug": "globex", "name": "Globex"})
    finally:
        event.remove(Write, "before_commit", fail)
    assert response.status_code == 500
    assert site.admin.get("/api/v1/teams/globex").status_code == 404
    assert site.admin.post("/api/v1/teams", json={"slug": "globex", "name": "Globex"}).status_code == 201


def test_hooks_run_after_the_commit_and_not_after_a_rollback(database: Database) -> None:
    seen: list[str] = []
    with database.write() as session:
        session.add(Team(slug="one", name="One"))
        session.after_commit(lambda: seen.append(_slugs(database)))
        assert seen == []
    assert seen == ["one"]
    with pytest.raises(ZeroDivisionError), database.write() as session:
        session.after_commit(lambda: seen.append("never"))
        raise ZeroDivisionError
    assert seen == ["one"]


def test_a_read_session_cannot_write_on_postgresql(database: Database) -> None:
    if database.is_sqlite:
        return
    with pytest.raises(DBAPIError, match="read-only"), database.read() as session:
        session.execute(insert(Team).values(slug="x", name="X"))


def test_times_are_aware_utc_in_and_out(database: Database) -> None:
    born = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    with database.write() as session:
        session.add(Team(slug="one", name="One", created=born))
    with database.read() as session:
        read = session.scalars(select(Team.created)).one()
    assert read == born and read.tzinfo is UTC


def test_a_guarded_update_returns_the_number_of_changed_rows(database: Database) -> None:
    with database.write() as session:
        session.add(Team(slug="one", name="One"))
        session.flush()
        statement = update(Team).where(Team.name == "One").values(name="Two")
        assert [session.change(statement), session.change(statement)] == [1, 0]


def test_a_locked_database_is_503_with_retry_after(
    site: Site, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    database: Database = site.app.state.database
    if not database.is_sqlite:
        return
    path = settings.resolved_database_url.removeprefix("sqlite:///")
    monkeypatch.setattr(db, "BUSY_TIMEOUT_SECONDS", 0)
    database.dispose()
    holder = sqlite3.connect(path, isolation_level=None)
    try:
        holder.execute("BEGIN IMMEDIATE")
        response = site.admin.post("/api/v1/me/keys", json={"name": "k"})
        assert (response.status_code, response.json()["code"]) == (503, "database_busy")
        assert int(response.headers["retry-after"]) > 0
        assert site.admin.get("/api/v1/me").status_code == 200, "readers do not wait for a writer"
    finally:
        holder.close()


def test_a_lost_connection_is_503(site: Site) -> None:
    database: Database = site.app.state.database
    if database.is_sqlite:
        return
    with pytest.raises(Busy), database.write() as session:
        pid = session.scalar(text("SELECT pg_backend_pid()"))
        with database.engine.connect() as other:
            other.execute(text(f"SELECT pg_terminate_backend({pid})"))
        session.execute(text("SELECT 1"))
    assert site.admin.get("/api/v1/me").status_code == 200


def test_a_missing_table_is_a_server_error_and_not_busy(anonymous: TestClient, database: Database) -> None:
    with database.write() as session:
        session.execute(text("DROP TABLE sign_in_attempt"))
    response = anonymous.post("/api/v1/auth/sign-in", json={"email": "a@b", "password": "x"})
    assert response.status_code == 500


def test_two_writers_take_turns(database: Database) -> None:
    with database.write() as session:
        session.add(Account(email="a@b", name="0", password_hash="-"))

    def add_one() -> None:
        for _ in range(10):
            with database.write() as session:
                row = session.scalars(select(Account).with_for_update()).one()
                row.name = str(int(row.name) + 1)

    threads = [threading.Thread(target=add_one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with database.read() as session:
        assert session.scalars(select(Account.name)).one() == "40"


def _slugs(database: Database) -> str:
    with database.read() as session:
        return ",".join(session.scalars(select(Team.slug)))


def test_json_that_earlier_versions_stored_is_read(database: Database) -> None:
    stored = r"""'{"host": "gpu-\ud800", "loss": NaN, "steps": 123456789012345678901234567890}'"""
    if not database.is_sqlite:  # which refuses the first two itself
        stored = """'{"steps": 123456789012345678901234567890}'::json"""
    with database.read() as session:
        (found,) = session.scalars(text(f"SELECT {stored} AS found").columns(found=JSON))
    assert found["steps"] == 123456789012345678901234567890
    if database.is_sqlite:
        assert found["host"] == "gpu-\ud800"
        assert isnan(found["loss"])
