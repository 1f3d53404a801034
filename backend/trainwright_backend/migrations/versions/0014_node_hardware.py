"""Nodes report the use of their hardware"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("node", sa.Column("hardware", sa.JSON(), nullable=True))
