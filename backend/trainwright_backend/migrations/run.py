"""Upgrading a database to this version's tables. Processes that start at once wait for each other."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from trainwright_backend.core.db import Database, Read

FOLDER = Path(__file__).parent


def migrate(database: Database) -> None:
    """Apply all migrations that ``database`` lacks."""
    with database.write() as session:
        command.upgrade(config(session.connection()), "head")


def upgrade_to(database: Database, revision: str) -> None:
    """Give an empty database the tables of an older version."""
    with database.write() as session:
        command.upgrade(config(session.connection()), revision)


def revision_of(session: Read) -> str | None:
    """The revision of a database's tables; None without tables."""
    return MigrationContext.configure(session.connection()).get_current_revision()


def is_known(revision: str) -> bool:
    """Whether this version has the migrations up to ``revision``."""
    known = ScriptDirectory(str(FOLDER)).walk_revisions()
    return any(script.revision == revision for script in known)


def is_from_newer_version(database: Database) -> bool:
    """Whether ``database`` has tables of a version that this one does not know."""
    with database.read() as session:
        revision = revision_of(session)
    return revision is not None and not is_known(revision)


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
