"""Runs on several nodes: how many a run has, the position of each placement's node, and where its launcher could listen.

The slots of a run, which were those on its one node, are now those on all its nodes.
"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("run", sa.Column("nodes", sa.Integer(), nullable=False, server_default="1"))
    op.add_column("placement", sa.Column("node_rank", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("placement", sa.Column("peer", sa.String(), nullable=True))
