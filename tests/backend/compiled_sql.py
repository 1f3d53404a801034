"""Compiled SQL that the tests of a process share.

SQLAlchemy compiles a statement once per engine, and nearly every test has an engine of its own, because it has a database of
its own. With a shared cache, a process compiles each statement once per kind of database.
"""

from typing import Any

from sqlalchemy import Connection, Engine, event

_MAX_STATEMENTS = 4_000


class SharedStatements(dict[Any, Any]):
    """A `compiled_cache` whose keys contain the dialect's name, not the dialect itself, since each engine has its own dialect."""

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(_by_name(key), default)

    def __setitem__(self, key: Any, compiled: Any) -> None:
        if len(self) >= _MAX_STATEMENTS:
            self.clear()
        super().__setitem__(_by_name(key), compiled)


def share_compiled_sql() -> None:
    """Let the connections of all engines of this process use one cache of compiled statements."""
    statements = SharedStatements()

    @event.listens_for(Engine, "engine_connect")
    def share(connection: Connection) -> None:
        connection.execution_options(compiled_cache=statements)


def _by_name(key: tuple[Any, ...]) -> tuple[Any, ...]:
    dialect, *rest = key
    return dialect.name, dialect.driver, *rest
