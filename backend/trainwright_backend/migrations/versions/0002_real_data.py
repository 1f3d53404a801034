"""Resumable uploads, stored files, readings of them, recipes, tokenizers; older versions are read again

Columns are added and dropped by ALTER TABLE and never by copying a table: dropping a table that others refer to would
take their rows with it on SQLite. Tables that nothing refers to are created again.
"""

from collections.abc import Sequence
from uuid import uuid4

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

STORAGE_LIMIT_BYTES = 2**40

LONG_AGO = "1970-01-01 00:00:00+00:00"


def upgrade() -> None:
    _make_stored_files()
    _make_readings()
    _change_versions()
    _change_preparations()
    _make_tokenizers_and_uploads()


def _make_stored_files() -> None:
    op.create_table(
        "storage_quota",
        sa.Column("team_id", sa.Uuid(), nullable=False),
        sa.Column("limit_bytes", sa.BigInteger(), nullable=False),
        sa.Column("used_bytes", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("used_bytes >= 0", name=op.f("ck_storage_quota_used_is_no_debt")),
        sa.ForeignKeyConstraint(
            ["team_id"], ["team.id"], name=op.f("fk_storage_quota_team_id_team"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("team_id", name=op.f("pk_storage_quota")),
    )
    op.create_table(
        "stored_file",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("team_id", sa.Uuid(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("object_key", sa.String(length=255), nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["team_id"], ["team.id"], name=op.f("fk_stored_file_team_id_team"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_stored_file")),
        sa.UniqueConstraint("object_key", name=op.f("uq_stored_file_object_key")),
    )
    op.create_index("ix_stored_file_team_id_digest", "stored_file", ["team_id", "digest"])
    op.execute(
        sa.text(
            "INSERT INTO storage_quota (team_id, limit_bytes, used_bytes) "
            f"SELECT team.id, {STORAGE_LIMIT_BYTES}, COALESCE(SUM(dataset_file.bytes), 0) FROM team "
            "LEFT JOIN dataset ON dataset.team_id = team.id "
            "LEFT JOIN dataset_version ON dataset_version.dataset_id = dataset.id "
            "LEFT JOIN dataset_file ON dataset_file.version_id = dataset_version.id GROUP BY team.id"
        )
    )


def _make_readings() -> None:
    op.create_table(
        "reading",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("team_id", sa.Uuid(), nullable=False),
        sa.Column("stored_file_id", sa.Uuid(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("read", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("error", sa.String(), nullable=True),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("lost_leases", sa.Integer(), nullable=False),
        sa.Column("lease", sa.Uuid(), nullable=True),
        sa.Column("leased_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("touched", sa.DateTime(timezone=True), nullable=False),
        sa.Column("format", sa.String(length=16), nullable=True),
        sa.Column("compression", sa.String(length=16), nullable=True),
        sa.Column("read_bytes", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.JSON(), nullable=True),
        sa.Column("documents", sa.BigInteger(), nullable=False),
        sa.Column("characters", sa.BigInteger(), nullable=False),
        sa.Column("rejected", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["stored_file_id"],
            ["stored_file.id"],
            name=op.f("fk_reading_stored_file_id_stored_file"),
            ondelete="RESTRICT",
        ),
        sa.ForeignKeyConstraint(
            ["team_id"], ["team.id"], name=op.f("fk_reading_team_id_team"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reading")),
        sa.UniqueConstraint("stored_file_id", "digest", name=op.f("uq_reading_stored_file_id_digest")),
    )
    op.create_index(op.f("ix_reading_state"), "reading", ["state"])
    op.create_index(op.f("ix_reading_team_id"), "reading", ["team_id"])
    op.create_table(
        "piece",
        sa.Column("reading_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("documents", sa.Integer(), nullable=False),
        sa.Column("characters", sa.BigInteger(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(
            ["reading_id"], ["reading.id"], name=op.f("fk_piece_reading_id_reading"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("reading_id", "number", name=op.f("pk_piece")),
    )
    op.create_table(
        "version_piece",
        sa.Column("version_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("reading_id", sa.Uuid(), nullable=False),
        sa.Column("piece_number", sa.Integer(), nullable=False),
        sa.Column("first_document", sa.BigInteger(), nullable=False),
        sa.Column("documents", sa.Integer(), nullable=False),
        sa.Column("kept", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["reading_id", "piece_number"],
            ["piece.reading_id", "piece.number"],
            name=op.f("fk_version_piece_reading_id_piece"),
            ondelete="RESTRICT",
        ),
        sa.ForeignKeyConstraint(
            ["version_id"],
            ["dataset_version.id"],
            name=op.f("fk_version_piece_version_id_dataset_version"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("version_id", "number", name=op.f("pk_version_piece")),
    )
    op.create_index(
        "ix_version_piece_reading_id_piece_number", "version_piece", ["reading_id", "piece_number"]
    )


def _change_versions() -> None:
    op.add_column("dataset", sa.Column("last_version", sa.Integer(), nullable=False, server_default="0"))
    op.execute(
        sa.text(
            "UPDATE dataset SET last_version = COALESCE("
            "(SELECT MAX(number) FROM dataset_version WHERE dataset_id = dataset.id), 0)"
        )
    )
    for column in (
        # The first release had no limit: datasets that worked keep working.
        sa.Column("recipe", sa.JSON(), nullable=False, server_default='{"rejected_limit": 1.0}'),
        sa.Column("changes", sa.JSON(), nullable=False, server_default="[]"),
        sa.Column("state", sa.String(length=16), nullable=False, server_default="waiting"),
        sa.Column("error", sa.String(), nullable=True),
        sa.Column("failures", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("lease", sa.Uuid(), nullable=True),
        sa.Column("leased_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("touched", sa.DateTime(timezone=True), nullable=False, server_default=LONG_AGO),
        sa.Column("statistics", sa.JSON(), nullable=True),
    ):
        op.add_column("dataset_version", column)
    op.create_index(op.f("ix_dataset_version_state"), "dataset_version", ["state"])
    op.create_table(
        "mixed_version",
        sa.Column("version_id", sa.Uuid(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("source_id", sa.Uuid(), nullable=False),
        sa.Column("weight", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["source_id"],
            ["dataset_version.id"],
            name=op.f("fk_mixed_version_source_id_dataset_version"),
            ondelete="RESTRICT",
        ),
        sa.ForeignKeyConstraint(
            ["version_id"],
            ["dataset_version.id"],
            name=op.f("fk_mixed_version_version_id_dataset_version"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("version_id", "position", name=op.f("pk_mixed_version")),
    )
    op.create_index(op.f("ix_mixed_version_source_id"), "mixed_version", ["source_id"])
    _name_files_by_stored_files()


def _name_files_by_stored_files() -> None:
    files = _dataset_files()
    op.drop_table("dataset_file")
    op.create_table(
        "dataset_file",
        sa.Column("version_id", sa.Uuid(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("stored_file_id", sa.Uuid(), nullable=False),
        sa.Column("reading_id", sa.Uuid(), nullable=True),
        sa.ForeignKeyConstraint(
            ["reading_id"],
            ["reading.id"],
            name=op.f("fk_dataset_file_reading_id_reading"),
            ondelete="RESTRICT",
        ),
        sa.ForeignKeyConstraint(
            ["stored_file_id"],
            ["stored_file.id"],
            name=op.f("fk_dataset_file_stored_file_id_stored_file"),
            ondelete="RESTRICT",
        ),
        sa.ForeignKeyConstraint(
            ["version_id"],
            ["dataset_version.id"],
            name=op.f("fk_dataset_file_version_id_dataset_version"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("version_id", "position", name=op.f("pk_dataset_file")),
    )
    op.create_index(op.f("ix_dataset_file_reading_id"), "dataset_file", ["reading_id"])
    op.create_index(op.f("ix_dataset_file_stored_file_id"), "dataset_file", ["stored_file_id"])
    for file in files:
        stored_file_id = uuid4()
        stored = {name: file[name] for name in ("team_id", "digest", "bytes", "object_key", "created")}
        op.execute(_stored_file.insert().values(id=stored_file_id, **stored))
        named = {name: file[name] for name in ("version_id", "position", "name")}
        op.execute(_dataset_file.insert().values(stored_file_id=stored_file_id, **named))


def _dataset_files() -> Sequence[sa.RowMapping]:
    """The files of all versions as the first release knew them."""
    old = _old_dataset_file.c
    asked = (
        sa.select(*old, _dataset.c.team_id, _dataset_version.c.created)
        .join(_dataset_version, _dataset_version.c.id == old.version_id)
        .join(_dataset, _dataset.c.id == _dataset_version.c.dataset_id)
    )
    return op.get_bind().execute(asked).mappings().all()


def _change_preparations() -> None:
    """Preparations in progress restart from documents; work done on byte ranges is repeated."""
    for column in (
        sa.Column("tokens_done", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("lengths", sa.JSON(), nullable=False, server_default="[]"),
        sa.Column("train_tokens", sa.BigInteger(), nullable=True),
        sa.Column("validation_tokens", sa.BigInteger(), nullable=True),
        sa.Column("validation_from_tail", sa.Boolean(), nullable=False, server_default=sa.false()),
    ):
        op.add_column("preparation", column)
    manifest = _preparation.c.manifest
    tokens = {
        f"{split}_tokens": sa.cast(manifest[split, "tokens"].as_string(), sa.BigInteger())
        for split in ("train", "validation")
    }
    op.execute(_preparation.update().where(_preparation.c.state == "ready").values(tokens))
    op.drop_column("preparation", "rejected")
    unfinished = "state IN ('waiting', 'working', 'failed')"
    op.execute(
        sa.text(
            "DELETE FROM preparation_slice WHERE preparation_id IN "
            f"(SELECT id FROM preparation WHERE {unfinished})"
        )
    )
    op.execute(
        sa.text(
            f"UPDATE preparation SET shards_done = 0, shards_total = NULL, lease = NULL WHERE {unfinished}"
        )
    )
    op.execute(sa.text("UPDATE preparation SET state = 'waiting' WHERE state = 'working'"))
    op.drop_table("rejected_line")
    op.create_table(
        "rejected_line",
        sa.Column("reading_id", sa.Uuid(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("line", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.String(length=255), nullable=False),
        sa.ForeignKeyConstraint(
            ["reading_id"],
            ["reading.id"],
            name=op.f("fk_rejected_line_reading_id_reading"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("reading_id", "position", name=op.f("pk_rejected_line")),
    )


def _make_tokenizers_and_uploads() -> None:
    op.create_table(
        "tokenizer",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("team_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("stored_file_id", sa.Uuid(), nullable=False),
        sa.Column("vocabulary", sa.Integer(), nullable=False),
        sa.Column("end_of_text", sa.String(length=80), nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_by", sa.Uuid(), nullable=True),
        sa.Column("created_by_name", sa.String(length=80), nullable=False),
        sa.ForeignKeyConstraint(
            ["created_by"],
            ["account.id"],
            name=op.f("fk_tokenizer_created_by_account"),
            ondelete="SET NULL",
        ),
        sa.ForeignKeyConstraint(
            ["stored_file_id"],
            ["stored_file.id"],
            name=op.f("fk_tokenizer_stored_file_id_stored_file"),
            ondelete="RESTRICT",
        ),
        sa.ForeignKeyConstraint(
            ["team_id"], ["team.id"], name=op.f("fk_tokenizer_team_id_team"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokenizer")),
    )
    for column in ("created_by", "stored_file_id", "team_id"):
        op.create_index(op.f(f"ix_tokenizer_{column}"), "tokenizer", [column])
    op.create_table(
        "upload",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("team_id", sa.Uuid(), nullable=False),
        sa.Column("created_by", sa.Uuid(), nullable=True),
        sa.Column("file_name", sa.String(length=255), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("offset", sa.BigInteger(), nullable=False),
        sa.Column("stored_file_id", sa.Uuid(), nullable=True),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint('"offset" >= 0 AND "offset" <= bytes', name=op.f("ck_upload_offset_within_bytes")),
        sa.ForeignKeyConstraint(
            ["created_by"], ["account.id"], name=op.f("fk_upload_created_by_account"), ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(
            ["stored_file_id"],
            ["stored_file.id"],
            name=op.f("fk_upload_stored_file_id_stored_file"),
            ondelete="RESTRICT",
        ),
        sa.ForeignKeyConstraint(
            ["team_id"], ["team.id"], name=op.f("fk_upload_team_id_team"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_upload")),
    )
    for column in ("created_by", "expires", "stored_file_id"):
        op.create_index(op.f(f"ix_upload_{column}"), "upload", [column])
    op.create_index("ix_upload_team_id_id", "upload", ["team_id", "id"])


_dataset = sa.table("dataset", sa.column("id", sa.Uuid()), sa.column("team_id", sa.Uuid()))
_dataset_version = sa.table(
    "dataset_version",
    sa.column("id", sa.Uuid()),
    sa.column("dataset_id", sa.Uuid()),
    sa.column("created", sa.DateTime(timezone=True)),
)
_preparation = sa.table(
    "preparation",
    sa.column("state", sa.String()),
    sa.column("manifest", sa.JSON()),
    sa.column("train_tokens", sa.BigInteger()),
    sa.column("validation_tokens", sa.BigInteger()),
)
_old_dataset_file = sa.table(
    "dataset_file",
    sa.column("version_id", sa.Uuid()),
    sa.column("position", sa.Integer()),
    sa.column("name", sa.String()),
    sa.column("bytes", sa.BigInteger()),
    sa.column("digest", sa.String()),
    sa.column("object_key", sa.String()),
)
_dataset_file = sa.table(
    "dataset_file",
    sa.column("version_id", sa.Uuid()),
    sa.column("position", sa.Integer()),
    sa.column("name", sa.String()),
    sa.column("stored_file_id", sa.Uuid()),
)
_stored_file = sa.table(
    "stored_file",
    sa.column("id", sa.Uuid()),
    sa.column("team_id", sa.Uuid()),
    sa.column("digest", sa.String()),
    sa.column("bytes", sa.BigInteger()),
    sa.column("object_key", sa.String()),
    sa.column("created", sa.DateTime(timezone=True)),
)
