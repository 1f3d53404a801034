"""The database: one code path for SQLite and PostgreSQL, and two kinds of session.

`Read` sees one snapshot and writes nothing. `Write` is one transaction: it commits when its block ends, before the HTTP
response is sent, and then runs its after-commit hooks (tasks, hints, notifications). A rollback drops the hooks. On
SQLite a `Write` takes the write lock with its first statement (``BEGIN IMMEDIATE``), and the threads of a process take
turns (`write_queue`): taking the lock after a read can fail, and waiting does not help. A database that is locked, full or
unreachable is a 503 with Retry-After.

Building a statement takes as long as running a short one. So those that nearly every request needs are built once, when their
module is imported, with `bindparam` where values go.
"""

import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import psycopg
from pydantic_core import from_json
from sqlalchemy import (
    Connection,
    CursorResult,
    DateTime,
    Delete,
    Dialect,
    Engine,
    MetaData,
    Table,
    Update,
    Uuid,
    create_engine,
    event,
    make_url,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import DeclarativeBase, Session, SessionTransaction
from sqlalchemy.types import TypeDecorator

from trainwright_backend.core.counters import DATABASE_UNAVAILABLE
from trainwright_backend.core.errors import Busy
from trainwright_backend.core.settings import Settings
from trainwright_backend.core.write_queue import Turn, WriteQueue

BUSY_TIMEOUT_SECONDS = 5
RETRY_SECONDS = (0.5, 1.0, 2.0, 4.0)
"""Waits of a command between its attempts to write."""
POOL_SIZE = 20
IMMEDIATE_OPTION = "trainwright_takes_the_write_lock"
TURN = "turn"
"""Key of a session's `Turn` in its ``info``."""
SNAPSHOT_ISOLATION = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
"""PostgreSQL's own default lets two SELECTs of one transaction see different rows; SQLite never does."""
KEEPALIVE_OPTIONS = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
"""Options of libpq, in seconds and milliseconds (the last). Without them, a host that drops packets blocks for hours."""

Result = TypeVar("Result")

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class CachedUuid(Uuid[UUID]):
    """Ids, which SQLite stores as text. Parsing one takes longer than reading it, and each round of placement reads thousands of
    the same."""

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any] | None:
        return _parse_uuid if dialect.name == "sqlite" else super().result_processor(dialect, coltype)


@lru_cache(maxsize=2**16)
def _parse_uuid(text: str | None) -> UUID | None:
    return None if text is None else UUID(text)


class Base(DeclarativeBase):
    """Base class of every table. Migrations can change constraints because they are named."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = {UUID: CachedUuid()}


class UtcDateTime(TypeDecorator[datetime]):
    """An aware time in UTC on both databases. A naive time is a programming error."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        assert value.tzinfo is not None, "times have a time zone"
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def now() -> datetime:
    """The current time, aware, in UTC."""
    return datetime.now(UTC)


def storable(text: str) -> str:
    """``text`` without characters that a database refuses: NUL (PostgreSQL) and lone surrogates (not UTF-8)."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


class Read(Session):
    """A session that sees one snapshot and writes nothing."""


class Write(Read):
    """A session of one transaction. ``session.info`` has what its after-commit hooks need, such as the enqueuer."""

    deleted_names: Sequence[str] = ()
    """Names of what the transaction deletes, for the audit log: afterwards only ids are known."""

    created_id: str = ""
    """Public id of what the transaction creates, for the audit log: the request's path does not have it."""

    def after_commit(self, hook: Callable[[], object]) -> None:
        """Run ``hook`` after this transaction commits, or never if it does not."""
        self.info.setdefault("after_commit", []).append(hook)

    def insert(self, table: type[Base] | Table) -> sqlite.Insert | postgresql.Insert:
        """An INSERT in the dialect of the session's database: SQLAlchemy has ON CONFLICT only in dialects."""
        is_sqlite = self.get_bind().dialect.name == "sqlite"
        return sqlite.insert(table) if is_sqlite else postgresql.insert(table)

    def change(self, statement: Update | Delete) -> int:
        """Run an UPDATE or DELETE and return the number of rows it changed; 0 means that its condition failed.

        Objects that were loaded before keep their old values: refresh them before reading them again.
        """
        result = self.execute(statement, execution_options={"synchronize_session": False})
        assert isinstance(result, CursorResult)
        return result.rowcount


@event.listens_for(Write, "after_transaction_create")
def _wait_for_turn(session: Write, transaction: SessionTransaction) -> None:
    turn: Turn | None = session.info.get(TURN)
    if turn is not None and not turn.take(BUSY_TIMEOUT_SECONDS):
        raise _busy()


class Database:
    """The engine and its sessions.

    Args:
        url: SQLAlchemy URL, ``sqlite:///…`` or ``postgresql+psycopg://…``.
        info: copied to every session's ``session.info``.
    """

    def __init__(self, url: str, info: Mapping[str, Any] | None = None) -> None:
        self.url = url
        self.engine = _engine(url)
        self._info = dict(info or {})
        self._read_engine = self.engine.execution_options(**({} if self.is_sqlite else SNAPSHOT_ISOLATION))
        self._write_engine = self.engine.execution_options(**{IMMEDIATE_OPTION: True})
        self.writers = WriteQueue()

    @property
    def is_sqlite(self) -> bool:
        return self.engine.dialect.name == "sqlite"

    @property
    def file(self) -> Path | None:
        """The file of an SQLite database. Opening a session creates it."""
        name = self.engine.url.database
        return Path(name) if self.is_sqlite and name else None

    @property
    def is_missing(self) -> bool:
        """Whether this is an SQLite database without a file."""
        return self.file is not None and not self.file.exists()

    @contextmanager
    def read(self) -> Iterator[Read]:
        """Open a read-only snapshot."""
        with busy_when_unavailable(), Read(self._read_engine, info=dict(self._info)) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Write]:
        """Open a transaction, which commits at the end of the block or rolls back on an exception."""
        with (
            busy_when_unavailable(),
            Turn(self.writers) as turn,
            Write(self._write_engine, info=dict(self._info)) as session,
        ):
            if self.is_sqlite:
                session.info[TURN] = turn
            yield session
            session.commit()
        for hook in session.info.get("after_commit", []):
            hook()

    def retry_write(self, change: Callable[[Write], Result]) -> Result:
        """Run ``change`` in a transaction, again with growing waits while the database is busy.

        For commands. Clients of the API repeat a request that was refused for this reason themselves.
        """
        for wait_seconds in RETRY_SECONDS:
            try:
                with self.write() as session:
                    return change(session)
            except Busy:
                time.sleep(wait_seconds)
        with self.write() as session:
            return change(session)

    def dispose(self) -> None:
        """Close the pooled connections."""
        self.engine.dispose()


def open_database(settings: Settings, info: Mapping[str, Any]) -> Database:
    """Open the database of the settings, and create the folder of an embedded one."""
    if settings.database_url is None:
        settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    return Database(settings.resolved_database_url, info)


@contextmanager
def busy_when_unavailable() -> Iterator[None]:
    """Turn errors of a database that is temporarily unavailable into a 503."""
    try:
        yield
    except PoolTimeout as error:
        raise _busy() from error
    except DBAPIError as error:
        if error.connection_invalidated or _is_unavailable(error.orig):
            raise _busy() from error
        raise


def _busy() -> Busy:
    DATABASE_UNAVAILABLE.inc()
    return Busy("database_busy", "The database is temporarily unavailable. Try again in a moment.")


def _is_unavailable(error: BaseException | None) -> bool:
    if isinstance(error, sqlite3.OperationalError):
        primary_code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        return primary_code in (
            sqlite3.SQLITE_BUSY,
            sqlite3.SQLITE_LOCKED,
            sqlite3.SQLITE_FULL,
            sqlite3.SQLITE_IOERR,
            sqlite3.SQLITE_CANTOPEN,
        )
    # Connection lost, too many connections, shutdown, deadlock, disk full.
    return isinstance(error, psycopg.OperationalError)


def _engine(url: str) -> Engine:
    pool: dict[str, Any] = {
        "pool_size": POOL_SIZE,
        "max_overflow": POOL_SIZE,
        "pool_timeout": BUSY_TIMEOUT_SECONDS,
        "json_deserializer": _read_json,
        "hide_parameters": True,  # errors are logged, and values can be email addresses and hashes
    }
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite":
        connect = {name: value for name, value in KEEPALIVE_OPTIONS.items() if name not in parsed.query}
        return create_engine(
            url, pool_pre_ping=True, isolation_level="READ COMMITTED", connect_args=connect, **pool
        )
    engine = create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_SECONDS}, **pool)
    event.listen(engine, "connect", _configure_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _read_json(text: str | bytes) -> Any:
    """The value of a JSON column. `json` takes twice as long and reads what the faster parser refuses: half a surrogate pair, which
    an earlier version stored, and hundreds of nested lists."""
    try:
        return from_json(text)
    except ValueError:
        return json.loads(text)


def _lower(text: str | None) -> str | None:
    """SQLite's own function changes ASCII letters only."""
    return None if text is None else text.lower()


def _configure_sqlite(connection: sqlite3.Connection, record: object) -> None:
    connection.isolation_level = None  # the driver must not open transactions; _begin_sqlite does
    connection.create_function("lower", 1, _lower, deterministic=True)
    for pragma in (
        f"busy_timeout={BUSY_TIMEOUT_SECONDS * 1000}",
        "journal_mode=WAL",
        "synchronous=FULL",
        "foreign_keys=ON",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    immediate = connection.get_execution_options().get(IMMEDIATE_OPTION, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")
