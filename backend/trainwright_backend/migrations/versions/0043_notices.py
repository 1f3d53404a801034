"""Notices to people, and how they want to get them. Nobody has chosen anything yet."""

import sqlalchemy as sa
from alembic import op

revision = "0043"
down_revision = "0042"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "notice",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("team_id", sa.Uuid(), nullable=True),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("sentence", sa.String(), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("in_app", sa.Boolean(), nullable=False),
        sa.Column("read", sa.DateTime(timezone=True), nullable=True),
        sa.Column("next_mail", sa.DateTime(timezone=True), nullable=True),
        sa.Column("mail_attempts", sa.Integer(), nullable=False),
        sa.Column("mailed", sa.DateTime(timezone=True), nullable=True),
        sa.Column("mail_error", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_notice")),
        sa.ForeignKeyConstraint(
            ["user_id"], ["account.id"], name=op.f("fk_notice_user_id_account"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["team_id"], ["team.id"], name=op.f("fk_notice_team_id_team"), ondelete="CASCADE"
        ),
    )
    op.create_index(op.f("ix_notice_user_id"), "notice", ["user_id"])
    op.create_index(op.f("ix_notice_team_id"), "notice", ["team_id"])
    op.create_index(op.f("ix_notice_next_mail"), "notice", ["next_mail"])
    op.create_table(
        "notice_choice",
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("app", sa.Boolean(), nullable=False),
        sa.Column("mail", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("user_id", "kind", name=op.f("pk_notice_choice")),
        sa.ForeignKeyConstraint(
            ["user_id"], ["account.id"], name=op.f("fk_notice_choice_user_id_account"), ondelete="CASCADE"
        ),
    )
