"""The leader: the one control loop of the installation that works.

The leader has an advisory lock of PostgreSQL, or a lock on a file next to SQLite's database. Both are released when
their process ends.
"""

import fcntl
from contextlib import suppress
from typing import BinaryIO

import structlog
from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError

from trainwright_backend.core.db import Database
from trainwright_backend.core.settings import Settings

ADVISORY_LOCK = 0x7472_6169_6E77  # "trainw"

log = structlog.get_logger()


class Leader:
    """Whether this process's loop is the leader."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._lock_file = settings.data_dir / "control.lock"
        self._connection: Connection | None = None
        self._file: BinaryIO | None = None

    def leads(self) -> bool:
        """Become the leader if there is none. A process that cannot find out does not lead."""
        try:
            return self._locks_file() if self._database.is_sqlite else self._has_advisory_lock()
        except (SQLAlchemyError, OSError) as error:
            log.warning("the control loop cannot find out whether it leads", error=str(error))
            if self._connection is not None:
                self._drop(self._connection)
            return False

    def resign(self) -> None:
        """Release the lock at once: the server may notice a closed connection only later."""
        if self._connection is not None:
            with suppress(SQLAlchemyError):
                self._connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": ADVISORY_LOCK})
            self._drop(self._connection)
        if self._file is not None:
            self._file.close()
            self._file = None

    def _locks_file(self) -> bool:
        if self._file is not None:
            return True
        self._lock_file.parent.mkdir(parents=True, exist_ok=True)
        file = self._lock_file.open("wb")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return False
        self._file = file
        return True

    def _has_advisory_lock(self) -> bool:
        """The lock belongs to a connection: as long as the connection answers, it has the lock."""
        if self._connection is not None:
            self._connection.execute(text("SELECT 1"))
            return True
        self._connection = self._database.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        statement = text("SELECT pg_try_advisory_lock(:key)")
        if self._connection.execute(statement, {"key": ADVISORY_LOCK}).scalar_one():
            return True
        self._connection.close()
        self._connection = None
        return False

    def _drop(self, connection: Connection) -> None:
        """Close the connection for good: in the pool it would keep the lock."""
        connection.invalidate()
        connection.close()
        self._connection = None
