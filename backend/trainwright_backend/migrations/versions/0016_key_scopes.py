"""API keys with a scope and an expiry

Older keys keep all rights of their owners, and do not expire.
"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("api_key", sa.Column("scope", sa.String(16), nullable=False, server_default="manage"))
    op.add_column("api_key", sa.Column("expires", sa.DateTime(timezone=True), nullable=True))
