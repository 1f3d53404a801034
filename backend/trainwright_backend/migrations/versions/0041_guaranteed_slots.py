"""Guaranteed shares of teams, and runs that were placed ahead of their turn. Existing teams have no share."""

import sqlalchemy as sa
from alembic import op

revision = "0041"
down_revision = "0040"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("quota", sa.Column("guaranteed_slots", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("run", sa.Column("backfill_until", sa.DateTime(timezone=True), nullable=True))
    op.add_column("run", sa.Column("backfill_for", sa.Uuid(), nullable=True))
