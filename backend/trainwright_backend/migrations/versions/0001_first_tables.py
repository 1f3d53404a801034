"""All tables of the first version"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "account",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("email", sa.String(length=254), nullable=False),
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("password_hash", sa.String(length=255), nullable=False),
        sa.Column("site_admin", sa.Boolean(), nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_account")),
        sa.UniqueConstraint("email", name=op.f("uq_account_email")),
    )
    op.create_table(
        "doomed_bytes",
        sa.Column("prefix", sa.String(), nullable=False),
        sa.Column("next_sweep", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_sweep", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("prefix", name=op.f("pk_doomed_bytes")),
    )
    with op.batch_alter_table("doomed_bytes", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_doomed_bytes_next_sweep"), ["next_sweep"], unique=False)

    op.create_table(
        "join_token",
        sa.Column("token_hash", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("expires", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("token_hash", name=op.f("pk_join_token")),
    )
    op.create_table(
        "node",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("token_hash", sa.String(length=64), nullable=False),
        sa.Column("joined", sa.DateTime(timezone=True), nullable=False),
        sa.Column("inventory", sa.JSON(), nullable=False),
        sa.Column("busy_slots", sa.JSON(), nullable=False),
        sa.Column("last_heartbeat", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_node")),
        sa.UniqueConstraint("name", name=op.f("uq_node_name")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_node_token_hash")),
    )
    op.create_table(
        "node_size",
        sa.Column("node_name", sa.String(), nullable=False),
        sa.Column("device", sa.String(), nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("joined", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("node_name", "device", name=op.f("pk_node_size")),
    )
    op.create_table(
        "sign_in_guess",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("subject", sa.String(length=64), nullable=False),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sign_in_guess")),
    )
    with op.batch_alter_table("sign_in_guess", schema=None) as batch_op:
        batch_op.create_index("ix_sign_in_guess_subject_time", ["subject", "time"], unique=False)

    op.create_table(
        "team",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("slug", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_team")),
        sa.UniqueConstraint("slug", name=op.f("uq_team_slug")),
    )
    op.create_table(
        "api_key",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("prefix", sa.String(length=16), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_used", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["user_id"], ["account.id"], name=op.f("fk_api_key_user_id_account"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_key")),
        sa.UniqueConstraint("hash", name=op.f("uq_api_key_hash")),
    )
    with op.batch_alter_table("api_key", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_api_key_user_id"), ["user_id"], unique=False)

    op.create_table(
        "browser_session",
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["user_id"], ["account.id"], name=op.f("fk_browser_session_user_id_account"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("hash", name=op.f("pk_browser_session")),
    )
    with op.batch_alter_table("browser_session", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_browser_session_expires"), ["expires"], unique=False)
        batch_op.create_index(batch_op.f("ix_browser_session_user_id"), ["user_id"], unique=False)

    op.create_table(
        "dataset",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("team_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_by", sa.Uuid(), nullable=True),
        sa.Column("created_by_name", sa.String(length=80), nullable=False),
        sa.ForeignKeyConstraint(
            ["created_by"], ["account.id"], name=op.f("fk_dataset_created_by_account"), ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(
            ["team_id"], ["team.id"], name=op.f("fk_dataset_team_id_team"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_dataset")),
    )
    with op.batch_alter_table("dataset", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_dataset_created_by"), ["created_by"], unique=False)
        batch_op.create_index("ix_dataset_team_id_id", ["team_id", "id"], unique=False)

    op.create_table(
        "membership",
        sa.Column("team_id", sa.Uuid(), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.ForeignKeyConstraint(
            ["team_id"], ["team.id"], name=op.f("fk_membership_team_id_team"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["user_id"], ["account.id"], name=op.f("fk_membership_user_id_account"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("team_id", "user_id", name=op.f("pk_membership")),
    )
    with op.batch_alter_table("membership", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_membership_user_id"), ["user_id"], unique=False)

    op.create_table(
        "one_time_link",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("purpose", sa.String(length=16), nullable=False),
        sa.Column("email", sa.String(length=254), nullable=True),
        sa.Column("team_id", sa.Uuid(), nullable=True),
        sa.Column("role", sa.String(length=16), nullable=True),
        sa.Column("expires", sa.DateTime(timezone=True), nullable=False),
        sa.Column("used", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["team_id"], ["team.id"], name=op.f("fk_one_time_link_team_id_team"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_one_time_link")),
        sa.UniqueConstraint("hash", name=op.f("uq_one_time_link_hash")),
    )
    op.create_table(
        "quota",
        sa.Column("team_id", sa.Uuid(), nullable=False),
        sa.Column("device", sa.String(length=16), nullable=False),
        sa.Column("slots_limit", sa.Integer(), nullable=False),
        sa.Column("used", sa.Integer(), nullable=False),
        sa.CheckConstraint("used >= 0", name=op.f("ck_quota_used_is_no_debt")),
        sa.ForeignKeyConstraint(
            ["team_id"], ["team.id"], name=op.f("fk_quota_team_id_team"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("team_id", "device", name=op.f("pk_quota")),
    )
    op.create_table(
        "quota_ledger",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("team_id", sa.Uuid(), nullable=False),
        sa.Column("device", sa.String(length=16), nullable=False),
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("reason", sa.String(length=16), nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["team_id"], ["team.id"], name=op.f("fk_quota_ledger_team_id_team"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_quota_ledger")),
    )
    with op.batch_alter_table("quota_ledger", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_quota_ledger_run_id"), ["run_id"], unique=False)
        batch_op.create_index("ix_quota_ledger_team_id_device", ["team_id", "device"], unique=False)

    op.create_table(
        "dataset_version",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("dataset_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(
            ["dataset_id"],
            ["dataset.id"],
            name=op.f("fk_dataset_version_dataset_id_dataset"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_dataset_version")),
        sa.UniqueConstraint("dataset_id", "number", name=op.f("uq_dataset_version_dataset_id_number")),
    )
    op.create_table(
        "dataset_file",
        sa.Column("version_id", sa.Uuid(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("object_key", sa.String(length=255), nullable=False),
        sa.ForeignKeyConstraint(
            ["version_id"],
            ["dataset_version.id"],
            name=op.f("fk_dataset_file_version_id_dataset_version"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("version_id", "position", name=op.f("pk_dataset_file")),
    )
    op.create_table(
        "preparation",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("team_id", sa.Uuid(), nullable=False),
        sa.Column("version_id", sa.Uuid(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("tokenizer", sa.JSON(), nullable=False),
        sa.Column("validation_fraction", sa.Double(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("error", sa.String(), nullable=True),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("may_be_repeated", sa.Boolean(), nullable=False),
        sa.Column("lease", sa.Uuid(), nullable=True),
        sa.Column("leased_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("touched", sa.DateTime(timezone=True), nullable=False),
        sa.Column("shards_done", sa.Integer(), nullable=False),
        sa.Column("shards_total", sa.Integer(), nullable=True),
        sa.Column("manifest", sa.JSON(), nullable=True),
        sa.Column("manifest_digest", sa.String(length=64), nullable=True),
        sa.Column("manifest_bytes", sa.Integer(), nullable=True),
        sa.Column("tokenizer_bytes", sa.Integer(), nullable=True),
        sa.Column("documents", sa.BigInteger(), nullable=True),
        sa.Column("rejected", sa.BigInteger(), nullable=True),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["team_id"], ["team.id"], name=op.f("fk_preparation_team_id_team"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["version_id"],
            ["dataset_version.id"],
            name=op.f("fk_preparation_version_id_dataset_version"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_preparation")),
        sa.UniqueConstraint("version_id", "digest", name=op.f("uq_preparation_version_id_digest")),
    )
    with op.batch_alter_table("preparation", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_preparation_state"), ["state"], unique=False)
        batch_op.create_index(batch_op.f("ix_preparation_team_id"), ["team_id"], unique=False)

    op.create_table(
        "preparation_slice",
        sa.Column("preparation_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("plan", sa.JSON(), nullable=False),
        sa.Column("lease", sa.Uuid(), nullable=True),
        sa.Column("leased_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("lost_leases", sa.Integer(), nullable=False),
        sa.Column("done", sa.Boolean(), nullable=False),
        sa.Column("result", sa.JSON(), nullable=True),
        sa.ForeignKeyConstraint(
            ["preparation_id"],
            ["preparation.id"],
            name=op.f("fk_preparation_slice_preparation_id_preparation"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("preparation_id", "number", name=op.f("pk_preparation_slice")),
    )
    with op.batch_alter_table("preparation_slice", schema=None) as batch_op:
        batch_op.create_index(
            "ix_preparation_slice_preparation_id_done", ["preparation_id", "done"], unique=False
        )

    op.create_table(
        "rejected_line",
        sa.Column("preparation_id", sa.Uuid(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("file", sa.String(length=255), nullable=False),
        sa.Column("line", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.String(length=255), nullable=False),
        sa.ForeignKeyConstraint(
            ["preparation_id"],
            ["preparation.id"],
            name=op.f("fk_rejected_line_preparation_id_preparation"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("preparation_id", "position", name=op.f("pk_rejected_line")),
    )
    op.create_table(
        "run",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("team_id", sa.Uuid(), nullable=False),
        sa.Column("preparation_id", sa.Uuid(), nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_by", sa.Uuid(), nullable=True),
        sa.Column("created_by_name", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("device", sa.String(), nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("verdict", sa.String(length=32), nullable=True),
        sa.Column("reason", sa.String(length=32), nullable=True),
        sa.Column("message", sa.String(), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("event_sequence", sa.Integer(), nullable=False),
        sa.Column("waiting_reason", sa.String(), nullable=False),
        sa.Column("progress", sa.String(), nullable=False),
        sa.Column("started", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended", sa.DateTime(timezone=True), nullable=True),
        sa.Column("retry_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("hinted", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["created_by"], ["account.id"], name=op.f("fk_run_created_by_account"), ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(
            ["preparation_id"],
            ["preparation.id"],
            name=op.f("fk_run_preparation_id_preparation"),
            ondelete="RESTRICT",
        ),
        sa.ForeignKeyConstraint(
            ["team_id"], ["team.id"], name=op.f("fk_run_team_id_team"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run")),
    )
    with op.batch_alter_table("run", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_run_created_by"), ["created_by"], unique=False)
        batch_op.create_index(batch_op.f("ix_run_preparation_id"), ["preparation_id"], unique=False)
        batch_op.create_index("ix_run_state_id", ["state", "id"], unique=False)
        batch_op.create_index("ix_run_team_id_id", ["team_id", "id"], unique=False)

    op.create_table(
        "attempt",
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("resume_step", sa.Integer(), nullable=False),
        sa.Column("started", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended", sa.DateTime(timezone=True), nullable=True),
        sa.Column("reason", sa.String(length=32), nullable=True),
        sa.ForeignKeyConstraint(
            ["run_id"], ["run.id"], name=op.f("fk_attempt_run_id_run"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "number", name=op.f("pk_attempt")),
    )
    op.create_table(
        "attempt_file",
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("file", sa.String(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["run.id"], name=op.f("fk_attempt_file_run_id_run"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "attempt", "file", name=op.f("pk_attempt_file")),
    )
    op.create_table(
        "checkpoint",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("prefix", sa.String(), nullable=False),
        sa.Column("files", sa.JSON(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("manifest_digest", sa.String(length=64), nullable=True),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.Column("committed", sa.DateTime(timezone=True), nullable=True),
        sa.Column("valid", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["run.id"], name=op.f("fk_checkpoint_run_id_run"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_checkpoint")),
        sa.UniqueConstraint(
            "run_id", "fence", "kind", "step", name=op.f("uq_checkpoint_run_id_fence_kind_step")
        ),
    )
    with op.batch_alter_table("checkpoint", schema=None) as batch_op:
        batch_op.create_index("ix_checkpoint_run_id_committed", ["run_id", "committed"], unique=False)

    op.create_table(
        "log_chunk",
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("file", sa.String(), nullable=False),
        sa.Column("offset", sa.BigInteger(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["run.id"], name=op.f("fk_log_chunk_run_id_run"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "attempt", "file", "offset", name=op.f("pk_log_chunk")),
    )
    op.create_table(
        "metric_mark",
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("offset", sa.BigInteger(), nullable=False),
        sa.Column("last_steps", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["run.id"], name=op.f("fk_metric_mark_run_id_run"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "number", name=op.f("pk_metric_mark")),
        sa.UniqueConstraint("run_id", "attempt", "offset", name=op.f("uq_metric_mark_run_id_attempt_offset")),
    )
    op.create_table(
        "metric_series",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("unit", sa.String(length=20), nullable=False),
        sa.Column("last_step", sa.BigInteger(), nullable=False),
        sa.Column("tail_points", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["run.id"], name=op.f("fk_metric_series_run_id_run"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_metric_series")),
        sa.UniqueConstraint("run_id", "attempt", "name", name=op.f("uq_metric_series_run_id_attempt_name")),
    )
    op.create_table(
        "placement",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("node_id", sa.Uuid(), nullable=True),
        sa.Column("node_name", sa.String(), nullable=False),
        sa.Column("device", sa.String(), nullable=False),
        sa.Column("slots", sa.JSON(), nullable=False),
        sa.Column("placed", sa.DateTime(timezone=True), nullable=False),
        sa.Column("claim_id", sa.String(), nullable=True),
        sa.Column("fence", sa.Integer(), nullable=True),
        sa.Column("job", sa.JSON(), nullable=True),
        sa.Column("downloads", sa.JSON(), nullable=False),
        sa.Column("lease_seconds", sa.Double(), nullable=True),
        sa.Column("renewal", sa.Integer(), nullable=False),
        sa.Column("renewed", sa.DateTime(timezone=True), nullable=True),
        sa.Column("closed", sa.String(length=32), nullable=True),
        sa.Column("end_reason", sa.String(length=32), nullable=True),
        sa.ForeignKeyConstraint(
            ["node_id"], ["node.id"], name=op.f("fk_placement_node_id_node"), ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(
            ["run_id"], ["run.id"], name=op.f("fk_placement_run_id_run"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_placement")),
        sa.UniqueConstraint("run_id", "claim_id", name=op.f("uq_placement_run_id_claim_id")),
    )
    with op.batch_alter_table("placement", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_placement_closed"), ["closed"], unique=False)
        batch_op.create_index(batch_op.f("ix_placement_node_id"), ["node_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_placement_run_id"), ["run_id"], unique=False)

    op.create_table(
        "run_event",
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=True),
        sa.Column("verdict", sa.String(length=32), nullable=True),
        sa.Column("reason", sa.String(length=32), nullable=True),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=True),
        sa.Column("message", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["run.id"], name=op.f("fk_run_event_run_id_run"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "sequence", name=op.f("pk_run_event")),
    )
    op.create_table(
        "run_summary",
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("values", sa.JSON(), nullable=False),
        sa.Column("spark", sa.JSON(), nullable=False),
        sa.Column("spark_stride", sa.Integer(), nullable=False),
        sa.Column("peak_name", sa.String(), nullable=True),
        sa.Column("bf16_peak_name", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["run_id"], ["run.id"], name=op.f("fk_run_summary_run_id_run"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_run_summary")),
    )
    op.create_table(
        "submission",
        sa.Column("team_id", sa.Uuid(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("body_digest", sa.String(), nullable=False),
        sa.Column("run_id", sa.Uuid(), nullable=True),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["run.id"], name=op.f("fk_submission_run_id_run"), ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(
            ["team_id"], ["team.id"], name=op.f("fk_submission_team_id_team"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("team_id", "key", name=op.f("pk_submission")),
    )
    with op.batch_alter_table("submission", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_submission_run_id"), ["run_id"], unique=False)

    op.create_table(
        "metric_chunk",
        sa.Column("series_id", sa.Integer(), nullable=False),
        sa.Column("start_step", sa.BigInteger(), nullable=False),
        sa.Column("end_step", sa.BigInteger(), nullable=False),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("steps", sa.LargeBinary(), nullable=True),
        sa.Column("minimum", sa.Float(precision=53), nullable=False),
        sa.Column("maximum", sa.Float(precision=53), nullable=False),
        sa.Column("total", sa.Float(precision=53), nullable=False),
        sa.Column("values", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["series_id"],
            ["metric_series.id"],
            name=op.f("fk_metric_chunk_series_id_metric_series"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("series_id", "start_step", name=op.f("pk_metric_chunk")),
    )
    op.create_table(
        "metric_tail",
        sa.Column("series_id", sa.Integer(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("value", sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(
            ["series_id"],
            ["metric_series.id"],
            name=op.f("fk_metric_tail_series_id_metric_series"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("series_id", "step", name=op.f("pk_metric_tail")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "placement_slot",
        sa.Column("node_id", sa.Uuid(), nullable=False),
        sa.Column("device", sa.String(), nullable=False),
        sa.Column("slot_index", sa.Integer(), nullable=False),
        sa.Column("placement_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(
            ["node_id"], ["node.id"], name=op.f("fk_placement_slot_node_id_node"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["placement_id"],
            ["placement.id"],
            name=op.f("fk_placement_slot_placement_id_placement"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("node_id", "device", "slot_index", name=op.f("pk_placement_slot")),
    )
    with op.batch_alter_table("placement_slot", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_placement_slot_placement_id"), ["placement_id"], unique=False)


def downgrade() -> None:
    with op.batch_alter_table("placement_slot", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_placement_slot_placement_id"))

    op.drop_table("placement_slot")
    op.drop_table("metric_tail")
    op.drop_table("metric_chunk")
    with op.batch_alter_table("submission", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_submission_run_id"))

    op.drop_table("submission")
    op.drop_table("run_summary")
    op.drop_table("run_event")
    with op.batch_alter_table("placement", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_placement_run_id"))
        batch_op.drop_index(batch_op.f("ix_placement_node_id"))
        batch_op.drop_index(batch_op.f("ix_placement_closed"))

    op.drop_table("placement")
    op.drop_table("metric_series")
    op.drop_table("metric_mark")
    op.drop_table("log_chunk")
    with op.batch_alter_table("checkpoint", schema=None) as batch_op:
        batch_op.drop_index("ix_checkpoint_run_id_committed")

    op.drop_table("checkpoint")
    op.drop_table("attempt_file")
    op.drop_table("attempt")
    with op.batch_alter_table("run", schema=None) as batch_op:
        batch_op.drop_index("ix_run_team_id_id")
        batch_op.drop_index("ix_run_state_id")
        batch_op.drop_index(batch_op.f("ix_run_preparation_id"))
        batch_op.drop_index(batch_op.f("ix_run_created_by"))

    op.drop_table("run")
    op.drop_table("rejected_line")
    with op.batch_alter_table("preparation_slice", schema=None) as batch_op:
        batch_op.drop_index("ix_preparation_slice_preparation_id_done")

    op.drop_table("preparation_slice")
    with op.batch_alter_table("preparation", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_preparation_team_id"))
        batch_op.drop_index(batch_op.f("ix_preparation_state"))

    op.drop_table("preparation")
    op.drop_table("dataset_file")
    op.drop_table("dataset_version")
    with op.batch_alter_table("quota_ledger", schema=None) as batch_op:
        batch_op.drop_index("ix_quota_ledger_team_id_device")
        batch_op.drop_index(batch_op.f("ix_quota_ledger_run_id"))

    op.drop_table("quota_ledger")
    op.drop_table("quota")
    op.drop_table("one_time_link")
    with op.batch_alter_table("membership", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_membership_user_id"))

    op.drop_table("membership")
    with op.batch_alter_table("dataset", schema=None) as batch_op:
        batch_op.drop_index("ix_dataset_team_id_id")
        batch_op.drop_index(batch_op.f("ix_dataset_created_by"))

    op.drop_table("dataset")
    with op.batch_alter_table("browser_session", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_browser_session_user_id"))
        batch_op.drop_index(batch_op.f("ix_browser_session_expires"))

    op.drop_table("browser_session")
    with op.batch_alter_table("api_key", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_api_key_user_id"))

    op.drop_table("api_key")
    op.drop_table("team")
    with op.batch_alter_table("sign_in_guess", schema=None) as batch_op:
        batch_op.drop_index("ix_sign_in_guess_subject_time")

    op.drop_table("sign_in_guess")
    op.drop_table("node_size")
    op.drop_table("node")
    op.drop_table("join_token")
    with op.batch_alter_table("doomed_bytes", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_doomed_bytes_next_sweep"))

    op.drop_table("doomed_bytes")
    op.drop_table("account")
