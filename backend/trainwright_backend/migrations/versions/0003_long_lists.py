"""Numbers by which runs are sorted, chunks of points that can be read from afar, logs that know their lines

Rows are read and written a stretch at a time, so that a large installation needs no large memory.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

ROWS = 500
COARSE_STRETCH = 62
SORTED_BY = ("loss", "mfu", "tokens_per_second")
FILTERED_BY = ("state", "created_by", "created_by_name", "folded_name")
LISTED_BY = {
    "created": (),
    "name": ("folded_name",),
    "loss": ("loss",),
    "mfu": ("mfu",),
    "tokens_per_second": ("tokens_per_second",),
    "step": ("last_step",),
}


def upgrade() -> None:
    _list_runs()
    _chunk_points()
    _count_lines()


def _list_runs() -> None:
    op.add_column("run", sa.Column("folded_name", sa.String(), nullable=False, server_default=""))
    op.add_column("run", sa.Column("last_step", sa.BigInteger(), nullable=True))
    for name in SORTED_BY:
        op.add_column("run", sa.Column(name, sa.Double(), nullable=True))
    known = sa.select(_run.c.id, _run.c.name, _summary.c.step, _summary.c["values"])
    known = known.join_from(_run, _summary, _summary.c.run_id == _run.c.id, isouter=True)
    for rows in _stretches(known, _run.c.id):
        _many(
            sa.update(_run).where(_run.c.id == sa.bindparam("one")),
            [{"one": row.id, **_listed(row)} for row in rows],
        )
    op.drop_index("ix_run_team_id_id", "run")
    for name, column in LISTED_BY.items():
        columns = ["team_id", *column, "id", *(item for item in FILTERED_BY if item not in column)]
        op.create_index(f"ix_run_by_{name}", "run", columns)


def _listed(row: Any) -> dict[str, Any]:
    values = row.values or {}
    return {
        "folded_name": row.name.casefold(),
        "last_step": row.step or None,
        **{name: values.get(name) for name in SORTED_BY},
    }


def _chunk_points() -> None:
    """The loose points of a series become one short chunk."""
    op.add_column(
        "metric_series", sa.Column("packed_step", sa.BigInteger(), nullable=False, server_default="0")
    )
    op.rename_table("metric_chunk", "metric_chunk_before")
    if op.get_bind().dialect.name == "postgresql":  # there the key's index has a name in the schema
        op.execute(sa.text("ALTER INDEX pk_metric_chunk RENAME TO pk_metric_chunk_before"))
    op.create_table(
        "metric_chunk",
        sa.Column("series_id", sa.Integer(), nullable=False),
        sa.Column("start_step", sa.BigInteger(), nullable=False),
        sa.Column("end_step", sa.BigInteger(), nullable=False),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("coarse", sa.LargeBinary(), nullable=True),
        sa.Column("steps", sa.LargeBinary(), nullable=True),
        sa.Column("values", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["series_id"],
            ["metric_series.id"],
            name=op.f("fk_metric_chunk_series_id_metric_series"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("series_id", "start_step", name=op.f("pk_metric_chunk")),
    )
    for rows in _stretches(sa.select(_old_chunk), _old_chunk.c.series_id, _old_chunk.c.start_step):
        _many(sa.insert(_chunk), [_packed(row) for row in rows])
        _many(
            sa.update(_series).where(_series.c.id == sa.bindparam("one")),
            [{"one": row.series_id, "packed_step": row.end_step} for row in rows],
        )
    tails = sa.select(_tail).order_by(_tail.c.series_id, _tail.c.step)
    with_tail = sa.select(_series.c.id).where(_series.c.tail_points > 0)
    for rows in _stretches(with_tail, _series.c.id):
        found = op.get_bind().execute(tails.where(_tail.c.series_id.in_([row.id for row in rows]))).all()
        _many(sa.insert(_chunk), [_short(points) for points in _by_series(found)])
    op.drop_table("metric_tail")
    op.drop_table("metric_chunk_before")


def _packed(row: Any) -> dict[str, Any]:
    values = np.frombuffer(row.values, "<f8")
    steps = np.arange(row.start_step, row.start_step + row.n) if row.steps is None else row.steps
    if isinstance(steps, bytes | memoryview):
        steps = np.frombuffer(steps, "<i8")
    chosen = set()
    for positions in np.array_split(np.arange(len(values)), -(-len(values) // COARSE_STRETCH)):
        stretch = values[positions]
        chosen |= {int(positions[stretch.argmin()]), int(positions[stretch.argmax()])}
    order = sorted(chosen)
    coarse = np.empty(len(order), [("step", "<i8"), ("value", "<f8")])
    coarse["step"], coarse["value"] = steps[order], values[order]
    kept = ("series_id", "start_step", "end_step", "n", "steps", "values")
    return {name: getattr(row, name) for name in kept} | {"coarse": coarse.tobytes()}


def _by_series(points: Sequence[Any]) -> Iterator[list[Any]]:
    found: dict[int, list[Any]] = {}
    for point in points:
        found.setdefault(point.series_id, []).append(point)
    yield from found.values()


def _short(points: list[Any]) -> dict[str, Any]:
    return {
        "series_id": points[0].series_id,
        "start_step": points[0].step,
        "end_step": points[-1].step,
        "n": len(points),
        "coarse": None,
        "steps": np.array([point.step for point in points], "<i8").tobytes(),
        "values": np.array([point.value for point in points], "<f8").tobytes(),
    }


def _count_lines() -> None:
    op.add_column("attempt_file", sa.Column("line_ends", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column(
        "attempt_file", sa.Column("has_open_line", sa.Boolean(), nullable=False, server_default=sa.false())
    )
    op.add_column("log_chunk", sa.Column("lines_before", sa.BigInteger(), nullable=False, server_default="0"))
    key = (_log_chunk.c.run_id, _log_chunk.c.attempt, _log_chunk.c.file, _log_chunk.c.offset)
    file: tuple[Any, ...] | None = None
    line_ends = 0
    for row in (row for rows in _stretches(sa.select(_log_chunk), *key, rows=16) for row in rows):
        this = (row.run_id, row.attempt, row.file)
        line_ends = line_ends if this == file else 0
        file = this
        _many(sa.update(_log_chunk).where(*_is(key, (*this, row.offset))), [{"lines_before": line_ends}])
        line_ends += bytes(row.content).count(b"\n")
        said = {"line_ends": line_ends, "has_open_line": not bytes(row.content).endswith(b"\n")}
        of_file = (_file.c.run_id, _file.c.attempt, _file.c.file)
        _many(sa.update(_file).where(*_is(of_file, this)), [said])
    op.create_index(
        "ix_log_chunk_lines_before", "log_chunk", ["run_id", "attempt", "file", "lines_before", "offset"]
    )


def _stretches(query: sa.Select[Any], *key: Any, rows: int = ROWS) -> Iterator[Sequence[Any]]:
    """Read rows in batches, in the order of their key. The query must select all columns of the key."""
    last: tuple[Any, ...] | None = None
    while True:
        these = query if last is None else query.where(sa.tuple_(*key) > sa.tuple_(*last))
        found = op.get_bind().execute(these.order_by(*key).limit(rows)).all()
        if not found:
            return
        yield found
        last = tuple(getattr(found[-1], column.name) for column in key)


def _is(columns: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    return [column == value for column, value in zip(columns, values, strict=True)]


def _many(statement: Any, rows: list[dict[str, Any]]) -> None:
    if rows:
        op.get_bind().execute(statement, rows)


_run = sa.table(
    "run",
    sa.column("id", sa.Uuid()),
    sa.column("name", sa.String()),
    sa.column("folded_name", sa.String()),
    sa.column("last_step", sa.BigInteger()),
    *(sa.column(name, sa.Double()) for name in SORTED_BY),
)
_summary = sa.table(
    "run_summary",
    sa.column("run_id", sa.Uuid()),
    sa.column("step", sa.Integer()),
    sa.column("values", sa.JSON()),
)
_series = sa.table(
    "metric_series",
    sa.column("id", sa.Integer()),
    sa.column("packed_step", sa.BigInteger()),
    sa.column("tail_points", sa.Integer()),
)
_old_chunk = sa.table(
    "metric_chunk_before",
    sa.column("series_id", sa.Integer()),
    sa.column("start_step", sa.BigInteger()),
    sa.column("end_step", sa.BigInteger()),
    sa.column("n", sa.Integer()),
    sa.column("steps", sa.LargeBinary()),
    sa.column("values", sa.LargeBinary()),
)
_chunk = sa.table(
    "metric_chunk",
    *(sa.column(column.name, column.type) for column in _old_chunk.c),
    sa.column("coarse", sa.LargeBinary()),
)
_tail = sa.table(
    "metric_tail",
    sa.column("series_id", sa.Integer()),
    sa.column("step", sa.BigInteger()),
    sa.column("value", sa.Double()),
)
_file = sa.table(
    "attempt_file",
    sa.column("run_id", sa.Uuid()),
    sa.column("attempt", sa.Integer()),
    sa.column("file", sa.String()),
    sa.column("line_ends", sa.BigInteger()),
    sa.column("has_open_line", sa.Boolean()),
)
_log_chunk = sa.table(
    "log_chunk",
    sa.column("run_id", sa.Uuid()),
    sa.column("attempt", sa.Integer()),
    sa.column("file", sa.String()),
    sa.column("offset", sa.BigInteger()),
    sa.column("content", sa.LargeBinary()),
    sa.column("lines_before", sa.BigInteger()),
)
