"""Limits of the storage of members. A stored file counts for who uploaded it, or else created a dataset with it."""

import sqlalchemy as sa
from alembic import op

revision = "0045"
down_revision = "0044"
branch_labels = None
depends_on = None

UPLOADER = """
    SELECT upload.created_by FROM upload
    WHERE upload.stored_file_id = stored_file.id AND upload.created_by IS NOT NULL
    ORDER BY upload.id LIMIT 1
"""
DATASET_CREATOR = """
    SELECT dataset.created_by FROM dataset_file
    JOIN dataset_version ON dataset_version.id = dataset_file.version_id
    JOIN dataset ON dataset.id = dataset_version.dataset_id
    WHERE dataset_file.stored_file_id = stored_file.id AND dataset.created_by IS NOT NULL
    ORDER BY dataset.id LIMIT 1
"""


def upgrade() -> None:
    op.add_column("member_limits", sa.Column("storage_bytes", sa.BigInteger(), nullable=True))
    op.add_column("stored_file", sa.Column("created_by", sa.Uuid(), nullable=True))
    op.execute(f"UPDATE stored_file SET created_by = COALESCE(({UPLOADER}), ({DATASET_CREATOR}))")
