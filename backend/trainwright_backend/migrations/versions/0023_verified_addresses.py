"""Whether the owner of an account has confirmed its address

Accounts from older versions count as confirmed: nothing recorded it, and their teams rely on them.
"""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "account", sa.Column("email_verified", sa.Boolean(), nullable=False, server_default=sa.true())
    )
