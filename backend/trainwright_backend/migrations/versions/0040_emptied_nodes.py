"""Drained nodes whose runs are moved off."""

import sqlalchemy as sa
from alembic import op

revision = "0040"
down_revision = "0039"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("node", sa.Column("move_runs", sa.Boolean(), nullable=False, server_default=sa.false()))
