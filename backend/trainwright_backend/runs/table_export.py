"""Runs as a table for other programs: one row per run, as CSV or Parquet, with full precision.

Rows are read and converted in blocks, so that the memory needed does not depend on their number.
"""

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from tempfile import SpooledTemporaryFile
from typing import IO, Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from trainwright.contracts.api.runs import ExportFormat
from trainwright_backend.core.db import Read
from trainwright_backend.core.errors import AppError
from trainwright_backend.core.ids import public_id
from trainwright_backend.runs.groups import dataset_names
from trainwright_backend.runs.lists import RunQuery, count_runs, each_page
from trainwright_backend.runs.service import tags_of
from trainwright_backend.runs.tables import Run, RunSummary

MAX_EXPORTED = 100_000
BLOCK_RUNS = 500
BLOCK_BYTES = 256 * 2**10
MEMORY_BYTES = 4 * 2**20
"""A larger file is written to the disk."""

FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet runs text that begins with one of them as a formula."""


@dataclass(frozen=True)
class _Row:
    """A run with what is stored about it elsewhere."""

    run: Run
    values: dict[str, float]
    step: int
    tags: list[str]
    dataset: str

    def spec(self, section: str, field: str) -> Any:
        """A value of the spec; None if an older version stored none."""
        found = self.run.spec.get(section)
        return found.get(field) if isinstance(found, dict) else None


_TIME = pa.timestamp("us", tz="UTC")
_COLUMNS: tuple[tuple[str, pa.DataType, Callable[[_Row], Any]], ...] = (
    ("id", pa.string(), lambda row: public_id("run", row.run.id)),
    ("name", pa.string(), lambda row: row.run.name),
    ("state", pa.string(), lambda row: row.run.state.value),
    ("reason", pa.string(), lambda row: None if row.run.reason is None else row.run.reason.value),
    ("dataset", pa.string(), lambda row: row.dataset),
    ("dataset_id", pa.string(), lambda row: row.spec("data", "dataset")),
    ("layers", pa.int64(), lambda row: row.spec("model", "layers")),
    ("width", pa.int64(), lambda row: row.spec("model", "width")),
    ("precision", pa.string(), lambda row: row.spec("precision", "kind")),
    ("learning_rate", pa.float64(), lambda row: row.spec("optimizer", "learning_rate")),
    ("global_sequences", pa.int64(), lambda row: row.spec("batch", "global_sequences")),
    ("device", pa.string(), lambda row: row.run.device),
    ("slots", pa.int64(), lambda row: row.run.slots),
    ("step", pa.int64(), lambda row: row.step),
    ("steps", pa.int64(), lambda row: row.spec("schedule", "steps")),
    ("loss", pa.float64(), lambda row: row.values.get("loss")),
    ("validation_loss", pa.float64(), lambda row: row.values.get("validation_loss")),
    ("mfu", pa.float64(), lambda row: row.values.get("mfu")),
    ("tokens_per_second", pa.float64(), lambda row: row.values.get("tokens_per_second")),
    ("grad_norm", pa.float64(), lambda row: row.values.get("grad_norm")),
    ("tags", pa.list_(pa.string()), lambda row: row.tags),
    ("created_by", pa.string(), lambda row: row.run.created_by_name),
    ("created", _TIME, lambda row: row.run.created),
    ("started", _TIME, lambda row: row.run.started),
    ("ended", _TIME, lambda row: row.run.ended),
)


def export_runs(session: Read, team_id: UUID, query: RunQuery, form: ExportFormat) -> IO[bytes]:
    """All runs that match, in the list's order, as a file that is open at its start. The caller closes it.

    Raises:
        AppError: ``too_many_runs``: more than `MAX_EXPORTED` match.
    """
    many = count_runs(session, team_id, query)
    if many > MAX_EXPORTED:
        detail = f"{many:,} runs match; one file has at most {MAX_EXPORTED:,}. Narrow the filter."
        raise AppError("too_many_runs", 422, detail)
    out = SpooledTemporaryFile(MEMORY_BYTES)  # noqa: SIM115 - the caller closes it
    blocks = (_rows(session, team_id, page) for page in each_page(session, team_id, query, BLOCK_RUNS))
    if form is ExportFormat.PARQUET:
        _write_parquet(out, blocks)
    else:
        _write_csv(out, blocks)
    out.seek(0)
    return out


def blocks_of(file: IO[bytes]) -> Iterator[bytes]:
    """The content of an exported file, which is closed at the end."""
    with file:
        while block := file.read(BLOCK_BYTES):
            yield block


def _write_parquet(out: IO[bytes], blocks: Iterator[list[_Row]]) -> None:
    schema = pa.schema([(name, kind) for name, kind, _ in _COLUMNS])
    with pq.ParquetWriter(out, schema, compression="zstd") as writer:
        for rows in blocks:
            columns = [pa.array([value(row) for row in rows], kind) for _, kind, value in _COLUMNS]
            writer.write_batch(pa.record_batch(columns, schema=schema))


def _write_csv(out: IO[bytes], blocks: Iterator[list[_Row]]) -> None:
    """RFC 4180, in UTF-8."""
    text = io.TextIOWrapper(out, "utf-8", newline="", write_through=True)
    writer = csv.writer(text)
    writer.writerow([name for name, _, _ in _COLUMNS])
    for rows in blocks:
        writer.writerows([_cell(value(row)) for _, _, value in _COLUMNS] for row in rows)
    text.detach()


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        value = " ".join(value)
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, str) and value.startswith(FORMULA_SIGNS):
        return f"'{value}"
    return value


def _rows(session: Read, team_id: UUID, page: Sequence[tuple[Run, RunSummary | None]]) -> list[_Row]:
    ids = [run.id for run, _ in page]
    tags = tags_of(session, ids)
    names = dataset_names(session, team_id, {run.dataset for run, _ in page})
    return [
        _Row(
            run=run,
            values={} if summary is None else summary.values,
            step=0 if summary is None else summary.step,
            tags=tags.get(run.id, []),
            dataset=names.get(run.dataset, run.dataset),
        )
        for run, summary in page
    ]
