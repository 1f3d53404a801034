"""Nodes in quarantine, their failures and self-tests."""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("node", sa.Column("quarantined", sa.DateTime(timezone=True), nullable=True))
    op.add_column("node", sa.Column("quarantine_reason", sa.String(), nullable=False, server_default=""))
    op.add_column("node", sa.Column("self_test", sa.JSON(), nullable=True))
    op.create_table(
        "node_failure",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("node_id", sa.Uuid(), nullable=False),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("code", sa.String(length=32), nullable=False),
        sa.Column("message", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["node_id"], ["node.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_node_failure_node_id", "node_failure", ["node_id"])
