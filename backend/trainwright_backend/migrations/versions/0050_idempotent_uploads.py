"""The upload that a request with an Idempotency-Key created."""

import sqlalchemy as sa
from alembic import op

revision = "0050"
down_revision = "0049"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("submission", sa.Column("upload_id", sa.Uuid(), nullable=True))
