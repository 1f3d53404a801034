"""The names of the field for tables and columns: curation, parsed files, chunks, the deletion queue

Tables, columns, indexes and constraints are renamed; rows change only where a version lists what differs from the one
before. SQLite cannot rename a constraint by ALTER TABLE, so the names are replaced in the stored table definitions, which
alters no stored row.
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

INDEXES = (
    ("reading", "ix_reading_state", "parsed_file", "ix_parsed_file_state", ["state"]),
    ("reading", "ix_reading_team_id", "parsed_file", "ix_parsed_file_team_id", ["team_id"]),
    (
        "version_piece",
        "ix_version_piece_reading_id_piece_number",
        "version_chunk",
        "ix_version_chunk_parsed_file_id_chunk_number",
        ["parsed_file_id", "chunk_number"],
    ),
    (
        "dataset_file",
        "ix_dataset_file_reading_id",
        "dataset_file",
        "ix_dataset_file_parsed_file_id",
        ["parsed_file_id"],
    ),
    (
        "preparation_slice",
        "ix_preparation_slice_preparation_id_done",
        "preparation_chunk",
        "ix_preparation_chunk_preparation_id_done",
        ["preparation_id", "done"],
    ),
    (
        "doomed_bytes",
        "ix_doomed_bytes_next_sweep",
        "deletion_queue",
        "ix_deletion_queue_delete_at",
        ["delete_at"],
    ),
    (
        "sign_in_guess",
        "ix_sign_in_guess_subject_time",
        "sign_in_attempt",
        "ix_sign_in_attempt_subject_time",
        ["subject", "time"],
    ),
)
"""Old table and name, new table, name and columns."""

TABLES = (
    ("reading", "parsed_file"),
    ("piece", "file_chunk"),
    ("version_piece", "version_chunk"),
    ("preparation_slice", "preparation_chunk"),
    ("doomed_bytes", "deletion_queue"),
    ("sign_in_guess", "sign_in_attempt"),
)

COLUMNS = (
    ("dataset_version", "recipe", "curation"),
    ("dataset_version", "touched", "last_activity"),
    ("dataset_file", "reading_id", "parsed_file_id"),
    ("parsed_file", "touched", "last_activity"),
    ("parsed_file", "lost_leases", "expired_leases"),
    ("file_chunk", "reading_id", "parsed_file_id"),
    ("version_chunk", "reading_id", "parsed_file_id"),
    ("version_chunk", "piece_number", "chunk_number"),
    ("version_chunk", "kept", "kept_documents"),
    ("rejected_line", "reading_id", "parsed_file_id"),
    ("preparation", "touched", "last_activity"),
    ("preparation", "may_be_repeated", "retryable"),
    ("preparation_chunk", "lost_leases", "expired_leases"),
    ("deletion_queue", "next_sweep", "delete_at"),
    ("deletion_queue", "last_sweep", "final_delete_at"),
)

CONSTRAINTS = (
    ("parsed_file", "pk_reading", "pk_parsed_file"),
    ("parsed_file", "uq_reading_stored_file_id_digest", "uq_parsed_file_stored_file_id_digest"),
    ("parsed_file", "fk_reading_stored_file_id_stored_file", "fk_parsed_file_stored_file_id_stored_file"),
    ("parsed_file", "fk_reading_team_id_team", "fk_parsed_file_team_id_team"),
    ("file_chunk", "pk_piece", "pk_file_chunk"),
    ("file_chunk", "fk_piece_reading_id_reading", "fk_file_chunk_parsed_file_id_parsed_file"),
    ("version_chunk", "pk_version_piece", "pk_version_chunk"),
    ("version_chunk", "fk_version_piece_reading_id_piece", "fk_version_chunk_parsed_file_id_file_chunk"),
    (
        "version_chunk",
        "fk_version_piece_version_id_dataset_version",
        "fk_version_chunk_version_id_dataset_version",
    ),
    ("dataset_file", "fk_dataset_file_reading_id_reading", "fk_dataset_file_parsed_file_id_parsed_file"),
    ("rejected_line", "fk_rejected_line_reading_id_reading", "fk_rejected_line_parsed_file_id_parsed_file"),
    ("preparation_chunk", "pk_preparation_slice", "pk_preparation_chunk"),
    (
        "preparation_chunk",
        "fk_preparation_slice_preparation_id_preparation",
        "fk_preparation_chunk_preparation_id_preparation",
    ),
    ("deletion_queue", "pk_doomed_bytes", "pk_deletion_queue"),
    ("sign_in_attempt", "pk_sign_in_guess", "pk_sign_in_attempt"),
    ("quota", "ck_quota_used_is_no_debt", "ck_quota_used_not_negative"),
    ("storage_quota", "ck_storage_quota_used_is_no_debt", "ck_storage_quota_used_not_negative"),
)


def upgrade() -> None:
    for old_table, old_name, *_ in INDEXES:
        op.drop_index(old_name, old_table)
    for old_table, table in TABLES:
        op.rename_table(old_table, table)
    for table, old_column, column in COLUMNS:
        op.execute(f"ALTER TABLE {table} RENAME COLUMN {old_column} TO {column}")
    op.drop_column("preparation_chunk", "plan")  # repeats what the version's chunk says
    _rename_constraints()
    for *_, table, name, columns in INDEXES:
        op.create_index(name, table, columns)
    _rename_in_changes()


def _rename_constraints() -> None:
    connection = op.get_bind()
    if connection.dialect.name != "sqlite":
        for table, old, new in CONSTRAINTS:
            op.execute(f"ALTER TABLE {table} RENAME CONSTRAINT {old} TO {new}")
        return
    version = connection.execute(sa.text("PRAGMA schema_version")).scalar_one()
    connection.execute(sa.text("PRAGMA writable_schema=ON"))
    try:
        for table, old, new in CONSTRAINTS:
            connection.execute(
                sa.text(
                    "UPDATE sqlite_schema SET sql = replace(sql, :old, :new) WHERE type = 'table' AND name = :name"
                ),
                {"old": f"CONSTRAINT {old} ", "new": f"CONSTRAINT {new} ", "name": table},
            )
        connection.execute(sa.text(f"PRAGMA schema_version={version + 1}"))
    finally:  # it belongs to the connection and outlives the transaction
        connection.execute(sa.text("PRAGMA writable_schema=RESET"))


def _rename_in_changes() -> None:
    """A changed field is listed by its path, `recipe.read.field: …`."""
    connection = op.get_bind()
    for version_id, changes in connection.execute(sa.select(_version.c.id, _version.c.changes)).all():
        renamed = [_renamed(change) for change in changes]
        if renamed != changes:
            connection.execute(_version.update().where(_version.c.id == version_id).values(changes=renamed))


def _renamed(change: str) -> str:
    return f"curation.{change.removeprefix('recipe.')}" if change.startswith("recipe.") else change


_version = sa.table("dataset_version", sa.column("id", sa.Uuid()), sa.column("changes", sa.JSON()))
