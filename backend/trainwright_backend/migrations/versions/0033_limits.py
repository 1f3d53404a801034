"""Limits of teams and members, notices about them, and the size of prepared data. Existing teams get no limits."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None

_preparation = sa.table(
    "preparation",
    sa.column("id", sa.Uuid()),
    sa.column("manifest", sa.JSON()),
    sa.column("manifest_bytes", sa.Integer()),
    sa.column("stored_bytes", sa.BigInteger()),
)


def upgrade() -> None:
    op.create_table(
        "team_limits",
        _team(),
        *_run_limits(),
        sa.Column("storage_bytes", sa.BigInteger(), nullable=True),
        sa.Column("editor_priority", sa.String(16), nullable=False),
        sa.Column("owner_priority", sa.String(16), nullable=False),
        sa.PrimaryKeyConstraint("team_id", name=op.f("pk_team_limits")),
        _to_team("team_limits"),
    )
    op.create_table(
        "member_limits",
        _team(),
        sa.Column("user_id", sa.Uuid(), nullable=False),
        *_run_limits(),
        sa.Column("gpus", sa.Integer(), nullable=True),
        sa.Column("cpu_slots", sa.Integer(), nullable=True),
        sa.Column("highest_priority", sa.String(16), nullable=True),
        sa.PrimaryKeyConstraint("team_id", "user_id", name=op.f("pk_member_limits")),
        sa.ForeignKeyConstraint(
            ["team_id", "user_id"],
            ["membership.team_id", "membership.user_id"],
            name=op.f("fk_member_limits_team_id_user_id_membership"),
            ondelete="CASCADE",
        ),
    )
    op.create_table(
        "limit_notice",
        sa.Column("id", sa.Uuid(), nullable=False),
        _team(),
        sa.Column("user_id", sa.Uuid(), nullable=True),
        sa.Column("resource", sa.String(16), nullable=False),
        sa.Column("month", sa.Date(), nullable=False),
        sa.Column("percent", sa.Integer(), nullable=False),
        sa.Column("limit", sa.Double(), nullable=False),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_limit_notice")),
        _to_team("limit_notice"),
        sa.ForeignKeyConstraint(
            ["user_id"],
            ["account.id"],
            name=op.f("fk_limit_notice_user_id_account"),
            ondelete="CASCADE",
        ),
    )
    op.create_index(op.f("ix_limit_notice_team_id_month"), "limit_notice", ["team_id", "month"])
    op.create_index(op.f("ix_limit_notice_user_id"), "limit_notice", ["user_id"])
    op.add_column(
        "preparation", sa.Column("stored_bytes", sa.BigInteger(), nullable=False, server_default="0")
    )
    _measure_preparations(op.get_bind())


def _measure_preparations(connection: sa.Connection) -> None:
    """Add up the shards of the ready preparations, one at a time: manifests of large data are long."""
    for preparation_id in connection.scalars(sa.select(_preparation.c.id)).all():
        here = _preparation.c.id == preparation_id
        row = connection.execute(
            sa.select(_preparation.c.manifest, _preparation.c.manifest_bytes).where(here)
        ).one()
        if row.manifest is not None:
            total = _shard_bytes(row.manifest) + (row.manifest_bytes or 0)
            connection.execute(_preparation.update().where(here).values(stored_bytes=total))


def _shard_bytes(manifest: dict[str, Any]) -> int:
    splits = [manifest.get(name) or {} for name in ("train", "validation")]
    return sum(shard.get("bytes", 0) for split in splits for shard in split.get("shards", ()))


def _team() -> sa.Column[Any]:
    return sa.Column("team_id", sa.Uuid(), nullable=False)


def _to_team(table: str) -> sa.ForeignKeyConstraint:
    name = op.f(f"fk_{table}_team_id_team")
    return sa.ForeignKeyConstraint(["team_id"], ["team.id"], name=name, ondelete="CASCADE")


def _run_limits() -> list[sa.Column[Any]]:
    return [
        sa.Column("gpu_hours_per_month", sa.Double(), nullable=True),
        sa.Column("cpu_hours_per_month", sa.Double(), nullable=True),
        sa.Column("concurrent_runs", sa.Integer(), nullable=True),
        sa.Column("queued_runs", sa.Integer(), nullable=True),
    ]
