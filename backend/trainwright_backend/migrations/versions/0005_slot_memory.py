"""Memory of a slot, which a planned rank is compared with; of nodes that have joined, from what they said of themselves"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

NODES = sa.table("node", sa.column("name", sa.String), sa.column("inventory", sa.JSON))
SIZES = sa.table(
    "node_size",
    sa.column("node_name", sa.String),
    sa.column("device", sa.String),
    sa.column("slot_bytes", sa.BigInteger),
)


def upgrade() -> None:
    op.add_column("node_size", sa.Column("slot_bytes", sa.BigInteger(), nullable=True))
    connection = op.get_bind()
    for name, inventory in connection.execute(sa.select(NODES.c.name, NODES.c.inventory)).all():
        shares = (
            {"cpu": inventory["memory_bytes"] // inventory["cpu_slots"]} if inventory.get("cpu_slots") else {}
        )
        gpus = [gpu["memory_bytes"] for gpu in inventory.get("gpus", [])]
        for device, size in (shares | ({"cuda": min(gpus)} if gpus else {})).items():
            of_node = (SIZES.c.node_name == name) & (SIZES.c.device == device)
            connection.execute(SIZES.update().where(of_node).values(slot_bytes=size))
