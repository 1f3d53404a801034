"""Slot time by person, and who created an invitation

The time of runs that still exist goes to the person who submitted them. That of deleted runs is nobody's.
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_run = sa.table("run", sa.column("id", sa.Uuid()), sa.column("created_by", sa.Uuid()))
_slot_time = sa.table("slot_time", sa.column("run_id", sa.Uuid()), sa.column("user_id", sa.Uuid()))


def upgrade() -> None:
    with op.batch_alter_table("one_time_link") as link:
        link.add_column(sa.Column("invited_by", sa.Uuid(), nullable=True))
        link.create_foreign_key(
            op.f("fk_one_time_link_invited_by_account"),
            "account",
            ["invited_by"],
            ["id"],
            ondelete="SET NULL",
        )
    op.add_column("slot_time", sa.Column("user_id", sa.Uuid(), nullable=True))
    submitter = sa.select(_run.c.created_by).where(_run.c.id == _slot_time.c.run_id).scalar_subquery()
    op.execute(_slot_time.update().values(user_id=submitter))
