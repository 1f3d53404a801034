"""The nodes that a run was moved off."""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("run", sa.Column("avoided_nodes", sa.JSON(), nullable=False, server_default="[]"))
