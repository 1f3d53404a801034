"""Slots that nodes may have, whatever they report

Nodes keep the slots that they have reported. The node of `trainwright-server up`, which runs on the server itself, may have
as many as it reports.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

LOCAL = "local"
"""Name of the node of `trainwright-server up`."""

_node = sa.table(
    "node",
    sa.column("id", sa.Uuid()),
    sa.column("name", sa.String()),
    sa.column("inventory", sa.JSON()),
    sa.column("allowed_slots", sa.JSON(none_as_null=True)),
)


def upgrade() -> None:
    op.add_column("node", sa.Column("allowed_slots", sa.JSON(), nullable=True))
    op.add_column(
        "join_token", sa.Column("any_slots", sa.Boolean(), nullable=False, server_default=sa.false())
    )
    connection = op.get_bind()
    others = sa.select(_node.c.id, _node.c.inventory).where(_node.c.name != LOCAL)
    for node_id, inventory in connection.execute(others).all():
        changed = _node.update().where(_node.c.id == node_id).values(allowed_slots=_slots(inventory))
        connection.execute(changed)


def _slots(inventory: dict[str, Any]) -> dict[str, int]:
    return {"cuda": len(inventory.get("gpus") or []), "cpu": int(inventory.get("cpu_slots", 2))}
