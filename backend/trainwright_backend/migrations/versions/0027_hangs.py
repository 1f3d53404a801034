"""Where the ranks of a placement stand still, so that the platform can tell which one the others wait for."""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("placement", sa.Column("stall", sa.JSON(), nullable=True))
