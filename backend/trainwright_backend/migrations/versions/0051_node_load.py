"""The load of nodes in each minute of the last day."""

import sqlalchemy as sa
from alembic import op

revision = "0051"
down_revision = "0050"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "node_load",
        sa.Column("node_id", sa.Uuid(), sa.ForeignKey("node.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("minute", sa.DateTime(timezone=True), primary_key=True),
        sa.Column("cpu_utilization", sa.Double(), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("disk_bytes", sa.BigInteger(), nullable=False),
        sa.Column("gpus", sa.JSON(), nullable=False),
    )
    op.add_column("node", sa.Column("load_minute", sa.DateTime(timezone=True), nullable=True))
