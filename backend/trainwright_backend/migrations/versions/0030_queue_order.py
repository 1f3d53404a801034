"""Priorities of runs, and places in the queue that people changed. Earlier runs have normal priority, and wait in order."""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("run", sa.Column("priority", sa.Integer(), nullable=False, server_default="1"))
    op.add_column("run", sa.Column("queue_place", sa.Uuid(), nullable=True))
