"""The maximum run time of runs, and their time on nodes. Earlier runs have no maximum."""

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("run", sa.Column("max_seconds", sa.Double(), nullable=True))
    op.add_column("run", sa.Column("occupied_seconds", sa.Double(), nullable=False, server_default="0"))
