"""Unfinished uploads in a bucket: the objects that hold their bytes."""

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "upload_segment",
        sa.Column("upload_id", sa.Uuid(), nullable=False),
        sa.Column("start", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("name", sa.String(32), nullable=False),
        sa.ForeignKeyConstraint(
            ["upload_id"], ["upload.id"], name="fk_upload_segment_upload_id_upload", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("upload_id", "start", name="pk_upload_segment"),
    )
