"""The dataset that a request with an Idempotency-Key created."""

import sqlalchemy as sa
from alembic import op

revision = "0047"
down_revision = "0046"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("submission", sa.Column("dataset_id", sa.Uuid(), nullable=True))
