"""Sign-in with an identity provider: identities of accounts, memberships that follow groups, the provider of a session. Device login.
Service accounts of teams.

Existing accounts are of people, memberships were given by owners, and sessions began with a password or a link.
"""

import sqlalchemy as sa
from alembic import op

revision = "0042"
down_revision = "0041"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "external_identity",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("issuer", sa.String(255), nullable=False),
        sa.Column("subject", sa.String(255), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("email", sa.String(254), nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_used", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["user_id"], ["account.id"], name="fk_external_identity_user_id_account", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_external_identity"),
        sa.UniqueConstraint("issuer", "subject", name="uq_external_identity_issuer_subject"),
        sa.UniqueConstraint("user_id", "issuer", name="uq_external_identity_user_id_issuer"),
    )
    op.add_column("browser_session", sa.Column("provider", sa.String(80), nullable=True))
    op.add_column(
        "membership", sa.Column("by_groups", sa.Boolean(), nullable=False, server_default=sa.false())
    )
    op.create_table(
        "device_login",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("device_hash", sa.String(64), nullable=False),
        sa.Column("user_hash", sa.String(64), nullable=False),
        sa.Column("client", sa.String(80), nullable=False),
        sa.Column("address", sa.String(64), nullable=False),
        sa.Column("scope", sa.String(16), nullable=False),
        sa.Column("lifetime_days", sa.Integer(), nullable=True),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires", sa.DateTime(timezone=True), nullable=False),
        sa.Column("interval_seconds", sa.Integer(), nullable=False),
        sa.Column("polled", sa.DateTime(timezone=True), nullable=True),
        sa.Column("user_id", sa.Uuid(), nullable=True),
        sa.Column("refused", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["user_id"], ["account.id"], name="fk_device_login_user_id_account", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_device_login"),
        sa.UniqueConstraint("device_hash", name="uq_device_login_device_hash"),
        sa.UniqueConstraint("user_hash", name="uq_device_login_user_hash"),
    )
    op.create_index("ix_device_login_address", "device_login", ["address"])
    op.create_index("ix_device_login_user_id", "device_login", ["user_id"])
    op.add_column("account", sa.Column("service_of", sa.Uuid(), nullable=True))
    op.create_index("ix_account_service_of", "account", ["service_of"])
