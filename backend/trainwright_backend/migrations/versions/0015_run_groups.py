"""Runs are listed by dataset and model, and people save views of the list"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

BLOCK = 1_000

_run = sa.table(
    "run",
    sa.column("id", sa.Uuid()),
    sa.column("spec", sa.JSON()),
    sa.column("dataset", sa.String()),
    sa.column("model", sa.String()),
)


def upgrade() -> None:
    for name in ("dataset", "model"):
        op.add_column("run", sa.Column(name, sa.String(), nullable=False, server_default=""))
    connection = op.get_bind()
    after = None
    while True:
        rows = sa.select(_run.c.id, _run.c.spec).order_by(_run.c.id).limit(BLOCK)
        found = connection.execute(rows if after is None else rows.where(_run.c.id > after)).all()
        if not found:
            break
        for run_id, spec in found:
            model, data = spec.get("model", {}), spec.get("data", {})
            size = f"{model.get('layers')}x{model.get('width')}"
            values = {"dataset": data.get("dataset", ""), "model": size}
            connection.execute(_run.update().where(_run.c.id == run_id).values(values))
        after = found[-1].id
    op.create_index("ix_run_team_id_dataset", "run", ["team_id", "dataset"])
    op.create_index("ix_run_team_id_model", "run", ["team_id", "model"])
    op.create_table(
        "saved_view",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("team_id", sa.Uuid(), nullable=False),
        sa.Column("account_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(80), nullable=False),
        sa.Column("view", sa.JSON(), nullable=False),
        sa.Column("saved", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["team_id"], ["team.id"], name=op.f("fk_saved_view_team_id_team"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["account_id"], ["account.id"], name=op.f("fk_saved_view_account_id_account"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_saved_view")),
        sa.UniqueConstraint(
            "team_id", "account_id", "name", name=op.f("uq_saved_view_team_id_account_id_name")
        ),
    )
    op.create_index("ix_saved_view_account_id", "saved_view", ["account_id"])
