"""The device of a session and its last use, and since when a run is paused."""

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("browser_session", sa.Column("device", sa.String(80), nullable=True))
    op.add_column("browser_session", sa.Column("address", sa.String(64), nullable=True))
    op.add_column("browser_session", sa.Column("last_used", sa.DateTime(timezone=True), nullable=True))
    op.add_column("run", sa.Column("paused", sa.DateTime(timezone=True), nullable=True))
    op.execute(
        "UPDATE run SET paused = (SELECT MAX(attempt.ended) FROM attempt WHERE attempt.run_id = run.id) "
        "WHERE state = 'paused'"
    )
