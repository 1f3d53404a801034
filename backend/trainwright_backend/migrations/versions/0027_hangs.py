"""Where the ranks of a placement have stalled, so that the platform can find the one that the others wait for."""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("placement", sa.Column("stall", sa.JSON(), nullable=True))
