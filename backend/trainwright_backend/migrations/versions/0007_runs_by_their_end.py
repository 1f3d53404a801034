"""An index by which runs are listed by when they ended"""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

COLUMNS = ("team_id", "ended", "id", "state", "created_by", "created_by_name", "folded_name")


def upgrade() -> None:
    op.create_index("ix_run_by_ended", "run", list(COLUMNS))
