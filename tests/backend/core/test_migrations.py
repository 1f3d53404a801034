"""Tables in code and tables in the database are the same, and rows of older releases go on, on both databases."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import text

from trainwright.contracts.recipe import Recipe
from trainwright_backend.core.db import Base, Database, now
from trainwright_backend.datasets.tables import Dataset, DatasetVersion, Preparation
from trainwright_backend.migrations.run import config, migrate


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """SQLAlchemy URL of a database without tables."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'empty.sqlite3'}"
    return str(request.getfixturevalue("fresh_postgres_database"))


@contextmanager
def upgraded(url: str, rows: list[tuple[str, dict[str, Any]]]) -> Iterator[Database]:
    """A database of the first release with ``rows``, brought to the tables of now."""
    database = Database(url)
    with database.write() as session:
        command.upgrade(config(session.connection()), "0001")
        for name, values in rows:
            table = sa.Table(name, sa.MetaData(), autoload_with=session.connection())
            given = {key: _plain(value, database) for key, value in values.items()}
            session.execute(table.insert().values(given))
    migrate(database)
    yield database
    database.dispose()


def _plain(value: object, database: Database) -> object:
    """As the table's columns, which were looked up in the database, take it."""
    return value.hex if isinstance(value, UUID) and database.is_sqlite else value


def old_preparation(version_id: UUID, team_id: UUID, **differs: Any) -> tuple[str, dict[str, Any]]:
    """The row of a preparation that is ready."""
    manifest = {"train": {"tokens": 5_000_000_000}, "validation": {"tokens": 7}}
    made = {"id": uuid4(), "version_id": version_id, "team_id": team_id, "digest": "0" * 64, "created": now()}
    work = {"failures": 0, "may_be_repeated": False, "touched": now(), "shards_done": 1, "shards_total": 1}
    asked = {"tokenizer": {"kind": "bytes"}, "validation_fraction": 0.01}
    return "preparation", made | work | asked | {"state": "ready", "manifest": manifest} | differs


def old_dataset(*numbers: int) -> list[tuple[str, dict[str, Any]]]:
    """The rows of a dataset with these versions."""
    team_id, dataset_id = uuid4(), uuid4()
    made = {"created": now()}
    team = {"id": team_id, "slug": "acme", "name": "Acme"} | made
    dataset = {"id": dataset_id, "team_id": team_id, "name": "old", "created_by_name": "Ada"} | made
    version = {"dataset_id": dataset_id, "bytes": 9, "digest": "0" * 64} | made
    versions = [("dataset_version", version | {"id": uuid4(), "number": number}) for number in numbers]
    return [("team", team), ("dataset", dataset), *versions]


def test_migrations_make_the_tables_that_the_code_has(database_url: str) -> None:
    database = Database(database_url)
    with database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []
    database.dispose()


def test_a_table_that_no_migration_makes_is_noticed(database_url: str) -> None:
    database = Database(database_url)
    with database.write() as session:
        session.execute(text("DROP TABLE quota_ledger"))
    with database.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata)
    database.dispose()


def test_migrating_again_changes_nothing(database_url: str) -> None:
    database = Database(database_url)
    migrate(database)
    database.dispose()


@pytest.fixture
def of_0003(tmp_path: Path) -> Iterator[Database]:
    """A SQLite database before the migration that edits a table's definition."""
    database = Database(f"sqlite:///{tmp_path / 'old.sqlite3'}")
    with database.write() as session:
        command.upgrade(config(session.connection()), "0003")
    yield database
    database.dispose()


def refuse_the_edit(database: Database) -> tuple[str, str, int]:
    """What is said when the edit fails; the table's definition and whether definitions may be written, after it."""
    with database.engine.connect() as connection:
        said = ""
        try:
            command.upgrade(config(connection), "0004")
        except (RuntimeError, sa.exc.DatabaseError) as error:
            said = str(error)
        connection.rollback()
        definition = connection.execute(text("SELECT sql FROM sqlite_schema WHERE name = 'run'")).scalar_one()
        return said, definition, connection.execute(text("PRAGMA writable_schema")).scalar_one()


def definition_of_runs(database: Database) -> str:
    with database.read() as session:
        return str(session.execute(text("SELECT sql FROM sqlite_schema WHERE name = 'run'")).scalar_one())


def test_a_table_that_is_not_as_the_version_before_made_it_is_left_and_shown(of_0003: Database) -> None:
    with of_0003.write() as session:
        session.execute(text("ALTER TABLE run RENAME COLUMN preparation_id TO shards_id"))
    before = definition_of_runs(of_0003)
    said, after, writable = refuse_the_edit(of_0003)
    assert "stands 0 times in its definition" in said and "shards_id CHAR(32) NOT NULL" in said
    assert (after, writable) == (before, 0)


def test_a_database_that_forbids_the_edit_says_so_and_nothing_may_be_written_after_it(
    of_0003: Database,
) -> None:
    def forbid(action: int, table: str | None, *_: object) -> int:
        edits = action == sqlite3.SQLITE_UPDATE and table in ("sqlite_master", "sqlite_schema")
        return sqlite3.SQLITE_DENY if edits else sqlite3.SQLITE_OK

    def arm(connection: sqlite3.Connection, _: object) -> None:
        connection.set_authorizer(forbid)

    before = definition_of_runs(of_0003)
    of_0003.engine.dispose()
    sa.event.listen(of_0003.engine, "connect", arm)
    said, after, writable = refuse_the_edit(of_0003)
    assert "not authorized" in said or "prohibited" in said
    assert (after, writable) == (before, 0)


def test_a_run_whose_data_is_not_there_stops_the_edit_and_is_named(of_0003: Database) -> None:
    with closing(sqlite3.connect(str(of_0003.engine.url.database))) as heedless:
        filled = [name for _, name, _, required, *_ in heedless.execute("PRAGMA table_info(run)") if required]
        heedless.execute(f"INSERT INTO run ({', '.join(filled)}) VALUES ({', '.join('1' * len(filled))})")
        heedless.commit()
    before = definition_of_runs(of_0003)
    said, after, writable = refuse_the_edit(of_0003)
    assert "row 1 refers to a preparation that is not there" in said
    assert (after, writable) == (before, 0)


def test_an_old_version_has_no_limit_of_rejected_documents_that_it_did_not_have(empty_url: str) -> None:
    with upgraded(empty_url, old_dataset(1)) as database, database.read() as session:
        (version,) = session.scalars(sa.select(DatasetVersion))
        assert Recipe.model_validate(version.recipe).rejected_limit == 1.0


def test_no_number_of_an_old_version_is_given_again(empty_url: str) -> None:
    with upgraded(empty_url, old_dataset(1, 3)) as database, database.read() as session:
        assert session.scalars(sa.select(Dataset.last_version)).all() == [3]


def test_an_old_preparation_knows_its_tokens(empty_url: str) -> None:
    rows = old_dataset(1)
    ids = rows[-1][1]["id"], rows[0][1]["id"]
    rows += [old_preparation(*ids), old_preparation(*ids, digest="1" * 64, state="waiting", manifest=None)]
    with upgraded(empty_url, rows) as database, database.read() as session:
        known = sa.select(Preparation.state, Preparation.train_tokens, Preparation.validation_tokens)
        found = {tuple(row) for row in session.execute(known)}
        assert found == {("ready", 5_000_000_000, 7), ("waiting", None, None)}
