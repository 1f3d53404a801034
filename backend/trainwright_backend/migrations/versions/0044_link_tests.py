"""Tests of connections between nodes."""

import sqlalchemy as sa
from alembic import op

revision = "0044"
down_revision = "0043"
branch_labels = None
depends_on = None

NODES = ("suspect_id", "listener_id", "connector_id")


def upgrade() -> None:
    op.create_table(
        "link_test",
        sa.Column("id", sa.Uuid(), nullable=False),
        *(sa.Column(name, sa.Uuid(), nullable=False) for name in NODES),
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("begun", sa.DateTime(timezone=True), nullable=False),
        sa.Column("port", sa.Integer(), nullable=True),
        sa.Column("listener_result", sa.JSON(), nullable=True),
        sa.Column("connector_result", sa.JSON(), nullable=True),
        *(sa.ForeignKeyConstraint([name], ["node.id"], ondelete="CASCADE") for name in NODES),
        sa.PrimaryKeyConstraint("id"),
    )
    for name in NODES:
        op.create_index(f"ix_link_test_{name}", "link_test", [name])
