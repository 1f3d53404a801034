"""Parquet: rows of one column, which a separate process reads (`parquet_process`).

If a file makes that process crash, the file is broken, and no other work is lost.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Self, cast

import pyarrow as pa

from trainwright.contracts.api.uploads import Column
from trainwright.contracts.curation import Compression
from trainwright.prepare.decompress import BLOCK_BYTES, PlainStream
from trainwright.prepare.documents import Document, Reason, Rejected, Source, UnusableDataError
from trainwright.prepare.field_values import NoDocumentError, document_text
from trainwright.prepare.limits import FREE_BYTES, MAX_RATIO
from trainwright.prepare.parquet_process import ENCRYPTED, ROWS, WRONG
from trainwright.prepare.rows import Position, Row

MAX_UNPACKED_BYTES = 64 * 2**30
"""Most bytes of a Parquet file within a compressed file: it has to be unpacked to disk."""
SAID_BYTES = 2**16


def parquet_columns(source: Source, compression: Compression) -> list[Column]:
    """The top-level columns, in order.

    Raises:
        UnusableDataError: the file is broken.
    """
    with _plain_file(source, compression) as file, _Process(source, file, "columns") as process:
        response = process.output.read()
        process.check_end()
    return [Column.model_validate(column) for column in json.loads(response)]


def parquet_rows(source: Source, compression: Compression, field: str, start: Position) -> Iterator[Row]:
    """The rows from ``start`` on. Their offset is the size of all values up to them, rejected ones included.

    Raises:
        UnusableDataError: the file is broken.
    """
    stored_bytes = source.path.stat().st_size
    allowed = FREE_BYTES + MAX_RATIO * stored_bytes
    row, plain_bytes = start.rows, start.offset
    values = _values(source, compression, field, start.rows)
    rows = next(values)
    for value in values:
        row += 1
        plain_bytes += _plain_size(value)
        if plain_bytes > allowed:  # a dictionary can repeat one long text a million times
            raise UnusableDataError(
                f"{source.name} expands to more than {allowed:,} bytes of text, more than {MAX_RATIO} to 1. Text does "
                "not compress so well. If this is intended, upload it as .jsonl."
            )
        found = _found(value, field, source.name, row)
        yield Row(found, row, row, plain_bytes, stored_bytes * row // max(rows, 1))


def _plain_size(value: object) -> int:
    """The approximate cost of reading ``value``: the characters or bytes of its texts, and 1 for any other value."""
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, dict):
        return 1 + sum(map(_plain_size, value.values()))
    if isinstance(value, list):
        return 1 + sum(map(_plain_size, value))
    return 1


def _found(value: object, field: str, name: str, row: int) -> Document | Rejected:
    try:
        if isinstance(value, NoDocumentError):
            raise value
        if isinstance(value, bytes):
            value = value.decode()
        return Document(document_text(value, field), row)
    except UnicodeDecodeError:
        return Rejected(file=name, line=row, reason=Reason.BAD_UTF8)
    except NoDocumentError as error:
        return Rejected(file=name, line=row, reason=str(error))


def _values(source: Source, compression: Compression, field: str, skipped: int) -> Iterator[Any]:
    """The number of rows in the file, then the values from row ``skipped`` on."""
    with (
        _plain_file(source, compression) as file,
        _Process(source, file, "values", field, str(skipped)) as process,
    ):
        try:
            with pa.ipc.open_stream(process.output) as stream:
                yield int(stream.schema.metadata[ROWS])
                for batch in stream:
                    yield from _plain_values(batch.column(0))
        except (pa.ArrowException, OSError) as error:
            process.check_end()
            raise UnusableDataError(f"{source.name} cannot be read as Parquet: {error}") from error
        process.check_end()


def _plain_values(column: pa.Array) -> Iterator[object]:
    try:
        values = column.to_pylist()
    except UnicodeDecodeError:
        values = [_value_of(item) for item in column]
    except ValueError as error:  # a struct with two fields of one name
        values = [NoDocumentError(f"cannot be read ({str(error)[:100]})")] * len(column)
    yield from values


def _value_of(one: pa.Scalar[Any]) -> object:
    try:
        return cast(object, one.as_py())
    except UnicodeDecodeError:
        return NoDocumentError(Reason.BAD_UTF8)


class _Process:
    """The process that reads ``file``; it has ended when the block is left."""

    def __init__(self, source: Source, file: BinaryIO, *arguments: str) -> None:
        self._name = source.name
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", "trainwright.prepare.parquet_process", *arguments],
            stdin=file,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env=_environment(),
            bufsize=BLOCK_BYTES,
        )
        assert self._process.stdout is not None
        self.output = self._process.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()
        self.output.close()
        self._said.close()

    def check_end(self) -> None:
        """Wait until it ends.

        Raises:
            UnusableDataError: it found an error in the file, or the file made it crash.
        """
        self.output.close()
        status = self._process.wait()
        self._said.seek(0)
        last = (self._said.read(SAID_BYTES).decode(errors="replace").strip().splitlines() or [""])[-1]
        if status == WRONG:
            raise UnusableDataError(f"{self._name} cannot be read as Parquet: {last}")
        if status and "decrypt" in last:
            raise UnusableDataError(f"{self._name} cannot be read as Parquet: {ENCRYPTED}")
        if status:
            raise UnusableDataError(
                f"{self._name} cannot be read as Parquet: it makes the reader crash ({last[:200] or status}). "
                "Write it again and upload that."
            )


def _environment() -> dict[str, str]:
    """Environment of the child: what Python needs to start, without secrets of this process."""
    needed = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "PYTHONPATH") if name in os.environ}
    return {**needed, "ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1"}


@contextmanager
def _plain_file(source: Source, compression: Compression) -> Iterator[BinaryIO]:
    if compression is Compression.NONE:
        with source.path.open("rb") as file:
            yield file
        return
    with (
        PlainStream(source, compression) as stream,
        tempfile.TemporaryFile(dir=source.folder) as unpacked,
    ):
        size = 0
        while block := stream.read(BLOCK_BYTES):
            size += len(block)
            if size > MAX_UNPACKED_BYTES:
                raise UnusableDataError(
                    f"{source.name} contains a Parquet file of more than {MAX_UNPACKED_BYTES // 2**30} GiB. "
                    "Upload the Parquet file as it is: its content is already compressed."
                )
            unpacked.write(block)
        unpacked.flush()
        unpacked.seek(0)
        yield cast(BinaryIO, unpacked)
