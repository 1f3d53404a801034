"""Webhooks of teams, and their messages."""

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "webhook",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("team_id", sa.Uuid(), nullable=False),
        sa.Column("url", sa.String(500), nullable=False),
        sa.Column("events", sa.JSON(), nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_by_name", sa.String(80), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook")),
        sa.ForeignKeyConstraint(
            ["team_id"], ["team.id"], name=op.f("fk_webhook_team_id_team"), ondelete="CASCADE"
        ),
    )
    op.create_index(op.f("ix_webhook_team_id"), "webhook", ["team_id"])
    op.create_table(
        "webhook_delivery",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("webhook_id", sa.Uuid(), nullable=False),
        sa.Column("event", sa.String(32), nullable=False),
        sa.Column("body", sa.String(), nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_attempt", sa.DateTime(timezone=True), nullable=True),
        sa.Column("delivered", sa.DateTime(timezone=True), nullable=True),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("error", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_delivery")),
        sa.ForeignKeyConstraint(
            ["webhook_id"],
            ["webhook.id"],
            name=op.f("fk_webhook_delivery_webhook_id_webhook"),
            ondelete="CASCADE",
        ),
    )
    op.create_index(op.f("ix_webhook_delivery_webhook_id"), "webhook_delivery", ["webhook_id"])
    op.create_index(op.f("ix_webhook_delivery_next_attempt"), "webhook_delivery", ["next_attempt"])
