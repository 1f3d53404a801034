"""Alembic's entry: runs migrations on the connection that `run.migrate` hands over, in its transaction."""

from importlib import import_module
from typing import Literal

from alembic import context
from sqlalchemy import Connection, Enum, func, select

from trainwright_backend.core.db import Base, UtcDateTime
from trainwright_backend.runs.tables import EndCodeColumn

FEATURES = ("auth", "teams", "uploads", "datasets", "runs", "metrics", "checkpoints", "nodes")

for feature in FEATURES:
    import_module(f"trainwright_backend.{feature}.tables")
for module in ("deletion_queue", "completed_backups"):
    import_module(f"trainwright_backend.core.{module}")


def render_item(kind: str, item: object, _: object) -> str | Literal[False]:
    """How a new migration spells our types: as the database's, so that it does not change when the code does."""
    if kind == "type" and isinstance(item, UtcDateTime):
        return "sa.DateTime(timezone=True)"
    if kind == "type" and isinstance(item, Enum):
        return f"sa.String(length={item.length})"
    if kind == "type" and isinstance(item, EndCodeColumn):
        return "sa.String(length=32)"
    return False


def _run(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(func.hashtext("trainwright migrations"))))
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        render_as_batch=True,
        render_item=render_item,
    )
    with context.begin_transaction():
        context.run_migrations()


_run(context.config.attributes["connection"])
