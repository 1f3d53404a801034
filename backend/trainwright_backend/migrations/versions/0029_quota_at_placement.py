"""Slots count toward the quota from the placement on, no longer from the submission on.

Waiting runs release what they reserved when they were submitted. Limits stay as they are.
"""

from datetime import UTC, datetime
from uuid import uuid4

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

_run = sa.table(
    "run",
    sa.column("id", sa.Uuid()),
    sa.column("team_id", sa.Uuid()),
    sa.column("device", sa.String()),
    sa.column("slots", sa.Integer()),
    sa.column("state", sa.String()),
)
_placement = sa.table("placement", sa.column("id", sa.Uuid()), sa.column("run_id", sa.Uuid()))
_placement_slot = sa.table("placement_slot", sa.column("placement_id", sa.Uuid()))
_quota = sa.table(
    "quota",
    sa.column("team_id", sa.Uuid()),
    sa.column("device", sa.String()),
    sa.column("used", sa.Integer()),
)
_ledger = sa.table(
    "quota_ledger",
    sa.column("id", sa.Uuid()),
    sa.column("team_id", sa.Uuid()),
    sa.column("device", sa.String()),
    sa.column("run_id", sa.Uuid()),
    sa.column("reason", sa.String()),
    sa.column("slots", sa.Integer()),
    sa.column("time", sa.DateTime(timezone=True)),
)


def upgrade() -> None:
    connection = op.get_bind()
    for run in connection.execute(_waiting_runs()).all():
        held = (
            _quota.c.team_id == run.team_id,
            _quota.c.device == run.device,
            _quota.c.used >= run.slots,
        )
        freed = connection.execute(_quota.update().where(*held).values(used=_quota.c.used - run.slots))
        if not freed.rowcount:  # it reserved nothing
            continue
        connection.execute(
            _ledger.insert().values(
                id=uuid4(),
                team_id=run.team_id,
                device=run.device,
                run_id=run.id,
                reason="release",
                slots=-run.slots,
                time=datetime.now(UTC),
            )
        )


def _waiting_runs() -> sa.Select[tuple[object, object, str, int]]:
    occupying = sa.select(_placement.c.run_id).join(
        _placement_slot, _placement_slot.c.placement_id == _placement.c.id
    )
    columns = (_run.c.id, _run.c.team_id, _run.c.device, _run.c.slots)
    return sa.select(*columns).where(_run.c.state.in_(("queued", "retry_wait")), _run.c.id.not_in(occupying))
