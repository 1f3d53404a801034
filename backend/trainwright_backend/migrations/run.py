"""Upgrading a database to this version's tables. Processes that start at once wait for each other."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from trainwright_backend.core.db import Database

FOLDER = Path(__file__).parent


def migrate(database: Database) -> None:
    """Apply all migrations that ``database`` lacks."""
    with database.write() as session:
        command.upgrade(config(session.connection()), "head")


def is_migrated(database: Database) -> bool:
    """Whether ``database`` has this version's tables."""
    with database.read() as session:
        found = MigrationContext.configure(session.connection()).get_current_heads()
    return set(found) == set(ScriptDirectory(str(FOLDER)).get_heads())


def config(connection: object) -> Config:
    """Alembic's configuration for an open connection."""
    made = Config()
    made.set_main_option("script_location", str(FOLDER))
    made.attributes["connection"] = connection
    return made
