"""The trace in which a run was submitted."""

import sqlalchemy as sa
from alembic import op

revision = "0046"
down_revision = "0045"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("run", sa.Column("traceparent", sa.String(64), nullable=True))
