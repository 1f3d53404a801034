"""Guaranteed shares of teams. Existing teams have none."""

import sqlalchemy as sa
from alembic import op

revision = "0042"
down_revision = "0039"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("quota", sa.Column("guaranteed_slots", sa.Integer(), nullable=False, server_default="0"))
