"""Tables in code and tables in the database are the same, on both databases."""

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import text

from trainwright_backend.core.db import Base, Database
from trainwright_backend.migrations.run import migrate


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
