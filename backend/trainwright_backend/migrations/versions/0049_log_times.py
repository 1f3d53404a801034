"""When the text of a log arrived. Earlier text has no time."""

import sqlalchemy as sa
from alembic import op

revision = "0049"
down_revision = "0048"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("log_chunk", sa.Column("received", sa.DateTime(timezone=True), nullable=True))
