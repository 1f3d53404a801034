"""Runs that were faster than their peak show no fraction of it

Fractions above 1 were stored until now. They are deleted with the other fractions of their attempts.
"""

import numpy as np
import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

FRACTIONS = ("mfu", "bf16_mfu", "hfu")

_series = sa.table(
    "metric_series",
    sa.column("id", sa.Integer()),
    sa.column("run_id", sa.Uuid()),
    sa.column("attempt", sa.Integer()),
    sa.column("name", sa.String()),
)
_chunk = sa.table("metric_chunk", sa.column("series_id", sa.Integer()), sa.column("values", sa.LargeBinary()))
_summary = sa.table(
    "run_summary",
    sa.column("run_id", sa.Uuid()),
    sa.column("attempt", sa.Integer()),
    sa.column("values", sa.JSON()),
    sa.column("peak_beaten", sa.Boolean()),
)
_run = sa.table("run", sa.column("id", sa.Uuid()), sa.column("mfu", sa.Float()))


def upgrade() -> None:
    op.add_column(
        "run_summary", sa.Column("peak_beaten", sa.Boolean(), nullable=False, server_default=sa.false())
    )
    connection = op.get_bind()
    points = (
        sa.select(_series.c.run_id, _series.c.attempt, _chunk.c["values"])
        .join_from(_series, _chunk, _chunk.c.series_id == _series.c.id)
        .where(_series.c.name.in_(FRACTIONS))
    )
    beaten = {
        (run_id, attempt)
        for run_id, attempt, values in connection.execute(points)
        if (np.frombuffer(values, "<f8") > 1).any()
    }
    for run_id, attempt in beaten:
        theirs = (_series.c.run_id == run_id, _series.c.attempt == attempt, _series.c.name.in_(FRACTIONS))
        ids = sa.select(_series.c.id).where(*theirs)
        connection.execute(_chunk.delete().where(_chunk.c.series_id.in_(ids)))
        connection.execute(_series.delete().where(*theirs))
    for run_id, attempt in beaten:
        row = connection.execute(
            sa.select(_summary.c["values"]).where(_summary.c.run_id == run_id, _summary.c.attempt == attempt)
        ).first()
        if row is None:
            continue
        values = {name: value for name, value in row[0].items() if name not in FRACTIONS}
        of_run = _summary.update().where(_summary.c.run_id == run_id)
        connection.execute(of_run.values(values=values, peak_beaten=True))
        connection.execute(_run.update().where(_run.c.id == run_id).values(mfu=None))
