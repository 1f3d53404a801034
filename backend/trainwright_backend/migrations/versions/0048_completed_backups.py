"""When the newest backup was made."""

import sqlalchemy as sa
from alembic import op

revision = "0048"
down_revision = "0047"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "completed_backup",
        sa.Column("id", sa.Uuid(), primary_key=True),
        sa.Column("state_of", sa.DateTime(timezone=True), nullable=False),
    )
