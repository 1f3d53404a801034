"""A database as files, and back.

SQLite is copied by its own backup interface, as one file. PostgreSQL is copied with COPY, a file per table, all in one
snapshot: unlike pg_dump this needs no program of the server's version beside the platform. The tables themselves are not
in the files, because the migrations create those of any revision.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from sqlalchemy import MetaData, inspect, make_url, text

from trainwright.contracts.base import Envelope
from trainwright_backend.core.db import Database, Read
from trainwright_backend.migrations.run import migrate, revision_of, upgrade_to

SQLITE_NAME = "trainwright.sqlite3"
VERSION_TABLE = "alembic_version"


class TableCopy(Envelope):
    """A table in a copy."""

    name: str
    rows: int
    columns: list[str]


class DatabaseCopy(Envelope):
    """What a copy of a database has."""

    engine: str
    """`sqlite` or `postgresql`."""

    revision: str
    """Revision of its tables."""

    tables: list[TableCopy]
    """In an order in which each comes after those that it refers to."""


def dump_database(database: Database, folder: Path) -> DatabaseCopy:
    """Write one consistent state of the database to files in ``folder``; others may write to it meanwhile."""
    if database.is_sqlite:
        path = folder / SQLITE_NAME
        with (
            closing(sqlite3.connect(_sqlite_path(database))) as source,
            closing(sqlite3.connect(path)) as copy,
        ):
            source.backup(copy)
        copied = Database(f"sqlite:///{path}")
        try:
            with copied.read() as session:
                return describe_tables(session)
        finally:
            copied.dispose()
            for beside in folder.glob(f"{SQLITE_NAME}-*"):
                beside.unlink()
    with database.read() as session:
        described = describe_tables(session)
        with _cursor(session.connection()) as cursor:
            for table in described.tables:
                with (
                    (folder / f"{table.name}.copy").open("wb") as file,
                    cursor.copy(_copy(table, "TO STDOUT")) as copy_out,
                ):
                    for block in copy_out:
                        file.write(block)
    return described


def load_database(database: Database, copied: DatabaseCopy, folder: Path) -> None:
    """Fill an empty database with a copy, and give it this version's tables.

    Raises:
        RuntimeError: it has other rows or columns than the copy afterwards, or cannot be migrated.
    """
    if database.is_sqlite:
        database.dispose()
        with (
            closing(sqlite3.connect(folder / SQLITE_NAME)) as source,
            closing(sqlite3.connect(_sqlite_path(database))) as target,
        ):
            source.backup(target)
    else:
        upgrade_to(database, copied.revision)
        with database.write() as session:
            for table in reversed(
                copied.tables
            ):  # migrations may have added rows, though never to the audit log
                if session.scalar(text(f'SELECT EXISTS (SELECT FROM "{table.name}")')):
                    session.execute(text(f'DELETE FROM "{table.name}"'))
            with _cursor(session.connection()) as cursor:
                for table in copied.tables:
                    with (
                        (folder / f"{table.name}.copy").open("rb") as file,
                        cursor.copy(_copy(table, "FROM STDIN")) as copy_in,
                    ):
                        while block := file.read(1 << 20):
                            copy_in.write(block)
    with database.read() as session:
        found = describe_tables(session)
    if found.tables != copied.tables:
        restored = {table.name: table.rows for table in found.tables}
        differing = [
            f"rows of {table.name}: {restored.get(table.name, 0):,} instead of {table.rows:,}"
            for table in copied.tables
            if restored.get(table.name) != table.rows
        ]
        raise RuntimeError(
            f"its tables are not those of the backup ({', '.join(differing) or 'other columns'})"
        )
    migrate(database)


def is_empty(database: Database) -> bool:
    """Whether a database has no tables."""
    return not inspect(database.engine).get_table_names()


def describe_tables(session: Read) -> DatabaseCopy:
    """The tables of a database with its engine and revision."""
    revision = revision_of(session)
    assert revision is not None, "the database has tables"
    engine = session.connection().dialect.name
    return DatabaseCopy(engine=engine, revision=revision, tables=list_tables(session))


def list_tables(session: Read) -> list[TableCopy]:
    """The tables of a database, whatever its version, with their rows and columns."""
    connection, tables = session.connection(), MetaData()
    tables.reflect(connection)
    return [
        TableCopy(
            name=table.name,
            rows=connection.scalar(text(f'SELECT count(*) FROM "{table.name}"')),
            columns=[column.name for column in table.columns],
        )
        for table in tables.sorted_tables
        if table.name != VERSION_TABLE
    ]


def _copy(table: TableCopy, direction: str) -> sql.Composed:
    columns = sql.SQL(", ").join(map(sql.Identifier, table.columns))
    return sql.SQL("COPY {} ({}) " + direction).format(sql.Identifier(table.name), columns)


@contextmanager
def _cursor(connection: Any) -> Iterator[psycopg.Cursor[Any]]:
    """A cursor of the driver, in the transaction of ``connection``."""
    driver: psycopg.Connection[Any] = connection.connection.driver_connection
    with driver.cursor() as cursor:
        yield cursor


def _sqlite_path(database: Database) -> str:
    path = make_url(database.url).database
    assert path is not None, "an embedded database is a file"
    return path
