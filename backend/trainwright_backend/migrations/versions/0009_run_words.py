"""The field's words for runs: expired leases, metered time, layout rollback, FP8 underflow

Columns are renamed, and stored codes, event types and series names are replaced by today's.
"""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

COLUMNS = (
    ("run", "charged_until", "metered_until"),
    ("run", "hinted", "hinted_at"),
    ("checkpoint", "holds", "contents"),
)

WORDS = (
    ("run", "reason", "lease_lapsed", "lease_expired"),
    ("run_event", "reason", "lease_lapsed", "lease_expired"),
    ("attempt", "reason", "lease_lapsed", "lease_expired"),
    ("placement", "end_reason", "lease_lapsed", "lease_expired"),
    ("placement", "closed", "lapsed", "expired"),
    ("run_event", "type", "layout_put_back", "layout_rolled_back"),
    ("metric_series", "name", "fp8_flushed", "fp8_underflow"),
)
"""Table, column, old word, new word."""

OLD_SERIES, SERIES = "fp8_flushed", "fp8_underflow"

_summary = sa.table("run_summary", sa.column("run_id", sa.Uuid()), sa.column("values", sa.JSON()))
_mark = sa.table(
    "metric_mark",
    sa.column("run_id", sa.Uuid()),
    sa.column("number", sa.Integer()),
    sa.column("last_steps", sa.JSON()),
)


def upgrade() -> None:
    for table, old, new in COLUMNS:
        op.execute(f"ALTER TABLE {table} RENAME COLUMN {old} TO {new}")
    for name, column, old, new in WORDS:
        words = sa.table(name, sa.column(column, sa.String()))
        op.execute(words.update().where(words.c[column] == old).values({column: new}))
    _rename_keys(_summary, [_summary.c.run_id], _summary.c["values"])
    _rename_keys(_mark, [_mark.c.run_id, _mark.c.number], _mark.c.last_steps)


def _rename_keys(
    table: sa.TableClause, key: list[sa.ColumnClause[Any]], column: sa.ColumnClause[Any]
) -> None:
    """Replace the series' old name in the keys of a JSON column."""
    connection = op.get_bind()
    has_old_name = sa.cast(column, sa.Text()).contains(OLD_SERIES)
    for *ids, values in connection.execute(sa.select(*key, column).where(has_old_name)).all():
        same_row = sa.and_(*(part == value for part, value in zip(key, ids, strict=True)))
        connection.execute(table.update().where(same_row).values({column.name: _renamed(values)}))


def _renamed(values: Mapping[str, Any]) -> dict[str, Any]:
    return {SERIES if name == OLD_SERIES else name: value for name, value in values.items()}
