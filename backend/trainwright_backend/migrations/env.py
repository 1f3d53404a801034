"""Alembic's entry: runs migrations on the connection that `run.migrate` hands over, in its transaction."""

from importlib import import_module

from alembic import context
from sqlalchemy import Connection, func, select

from trainwright_backend.core.db import Base

FEATURES = ("auth", "teams", "datasets", "runs", "metrics", "checkpoints", "nodes")

for feature in FEATURES:
    import_module(f"trainwright_backend.{feature}.tables")


def _run(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(func.hashtext("trainwright migrations"))))
    context.configure(connection=connection, target_metadata=Base.metadata, render_as_batch=True)
    with context.begin_transaction():
        context.run_migrations()


_run(context.config.attributes["connection"])
