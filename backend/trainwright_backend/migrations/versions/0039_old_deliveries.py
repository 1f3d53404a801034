"""Old messages of webhooks are found by an index."""

from alembic import op

revision = "0039"
down_revision = "0038"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(op.f("ix_webhook_delivery_created"), "webhook_delivery", ["created"])
