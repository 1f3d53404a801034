"""How far an attempt that diverged had read, so that the next one reads on behind that

Earlier attempts have no value: their runs failed at once.
"""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("attempt", sa.Column("sequences_read", sa.BigInteger(), nullable=True))
