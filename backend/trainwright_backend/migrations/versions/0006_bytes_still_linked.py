"""Until when bytes that are to go are kept for who still reads them by links"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("doomed_bytes", sa.Column("links_until", sa.DateTime(timezone=True), nullable=True))
    # What was to be deleted and is not yet waits for links, or is swept again: a few minutes more do no harm.
    op.execute("UPDATE doomed_bytes SET links_until = next_sweep WHERE next_sweep < last_sweep")
