"""The SQL statements that a database gets, to count what a request or a round of the control loop sends."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, event


@contextmanager
def sent_statements(engine: Engine) -> Iterator[list[str]]:
    """The statements that are sent inside the block. ``BEGIN IMMEDIATE`` starts a transaction that writes on SQLite."""
    found: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        found.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(engine, "before_cursor_execute", note)
