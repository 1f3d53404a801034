"""Parquet: rows of one column, in batches of bounded size, after what the file announces was held against its length.

Only the wanted column is read, page by page: how large a row group is does not matter. A page is unpacked as a whole.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from trainwright.contracts.api import Column
from trainwright.contracts.recipe import Compression
from trainwright.prepare.decompress import BLOCK_BYTES, FREE_BYTES, MOST_RATIO, PlainStream
from trainwright.prepare.documents import Document, Reason, Rejected, Source, UnusableDataError
from trainwright.prepare.parquet_pages import LyingPageError, largest_page_bytes
from trainwright.prepare.rows import Position, Row
from trainwright.prepare.sniff import ENCRYPTED_PARQUET_MAGIC, PARQUET_MAGIC
from trainwright.prepare.values import MESSAGES, TEXT, NoDocumentError, document_text

MOST_FOOTER_BYTES = 64 * 2**20
MOST_UNPACKED_BYTES = 64 * 2**30
"""Most bytes of a Parquet file that is compressed once more: it has to be unpacked to disk."""
MOST_ROWS_AT_ONCE = 256
BATCH_BYTES = 128 * 2**20
"""Values reach the length of a page at most, so a batch holds as many rows as pages go into this."""


@contextmanager
def open_parquet(source: Source, compression: Compression) -> Iterator[tuple[pq.ParquetFile, BinaryIO]]:
    """The Parquet file, and its bytes.

    Raises:
        UnusableDataError: inside the block too, whenever the library finds the file broken.
    """
    with _plain_file(source, compression) as file, _errors(source.name):
        _check_frame(source.name, file)
        file.seek(0)
        with pq.ParquetFile(
            _handle(source, compression, file), buffer_size=BLOCK_BYTES, pre_buffer=False
        ) as table:
            yield table, file


def parquet_columns(table: pq.ParquetFile) -> list[Column]:
    """The top-level columns, in order."""
    found = []
    for field in table.schema_arrow:
        word = _word(field.type)
        found.append(Column(name=field.name, type=word, usable=word in (TEXT, MESSAGES)))
    return found


def parquet_rows(
    table: pq.ParquetFile, file: BinaryIO, source: Source, field: str, start: Position
) -> Iterator[Row]:
    """The rows from ``start`` on."""
    total, stored_bytes = table.metadata.num_rows, source.path.stat().st_size
    row, text_bytes = start.rows, 0
    for value in _values(table, file, source.name, field, start.rows):
        row += 1
        found = _found(value, field, source.name, row)
        if isinstance(found, Document):
            text_bytes += len(found.text)
            _check_ratio(source.name, text_bytes, file)
        yield Row(found, row, row, 0, stored_bytes * row // max(total, 1))


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


def _values(table: pq.ParquetFile, file: BinaryIO, name: str, field: str, skipped: int) -> Iterator[object]:
    first = 0
    for number in range(table.metadata.num_row_groups):
        rows = table.metadata.row_group(number).num_rows
        if first + rows > skipped:
            yield from _values_of_group(table, file, name, field, number, max(skipped - first, 0))
        first += rows


def _values_of_group(
    table: pq.ParquetFile, file: BinaryIO, name: str, field: str, number: int, skipped: int
) -> Iterator[object]:
    rows_at_once = max(
        1, min(MOST_ROWS_AT_ONCE, BATCH_BYTES // max(_largest_page(table, file, field, number), 1))
    )
    row = 0
    for batch in table.iter_batches(rows_at_once, row_groups=[number], columns=[field], use_threads=False):
        if row + len(batch) > skipped:
            yield from _plain_values(batch.column(field).slice(max(skipped - row, 0)))
        row += len(batch)
    announced = table.metadata.row_group(number).num_rows
    if row != announced:
        raise UnusableDataError(
            f"{name}: row group {number} announces {announced:,} rows and holds {row:,}. Upload it again."
        )


def _plain_values(column: pa.Array) -> Iterator[object]:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    try:
        yield from column.to_pylist()
    except UnicodeDecodeError:
        for one in column:
            yield _value_of(one)


def _value_of(one: pa.Scalar[Any]) -> object:
    try:
        return cast(object, one.as_py())
    except UnicodeDecodeError:
        return NoDocumentError(Reason.BAD_UTF8)


def _largest_page(table: pq.ParquetFile, file: BinaryIO, field: str, number: int) -> int:
    """Plain bytes of the largest page of ``field`` in a row group."""
    group, size = table.metadata.row_group(number), file.seek(0, 2)
    largest = 0
    for index in range(group.num_columns):
        column = group.column(index)
        if column.path_in_schema != field and not column.path_in_schema.startswith(f"{field}."):
            continue
        starts = [column.data_page_offset]
        if column.has_dictionary_page and column.dictionary_page_offset:
            starts.append(column.dictionary_page_offset)
        start, stored_bytes = min(starts), column.total_compressed_size
        if start < len(PARQUET_MAGIC) or stored_bytes < 0 or start + stored_bytes > size:
            raise LyingPageError(f"a column announces {stored_bytes:,} bytes at {start:,}, beyond its file")
        largest = max(largest, largest_page_bytes(file, start, stored_bytes))
    return largest


def _word(kind: pa.DataType) -> str:
    """`text`, `messages`, or the library's word."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if _is_text(kind):
        return TEXT
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = kind.value_type
        if pa.types.is_struct(inner) and {"role", "content"} <= {
            inner.field(i).name for i in range(inner.num_fields)
        }:
            return MESSAGES
    return str(kind)[:80]


def _is_text(kind: pa.DataType) -> bool:
    # Older writers leave out the mark that tells a text from bytes.
    tests = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_string_view,
        pa.types.is_binary,
        pa.types.is_large_binary,
    )
    return any(test(kind) for test in tests)


def _check_ratio(name: str, text_bytes: int, file: BinaryIO) -> None:
    """A dictionary can spell one long text a million times."""
    allowed = FREE_BYTES + MOST_RATIO * file.seek(0, 2) if text_bytes > FREE_BYTES else FREE_BYTES
    if text_bytes > allowed:
        raise UnusableDataError(
            f"{name} swells to more than {allowed:,} bytes of text, beyond {MOST_RATIO} to 1, which text does not do. "
            "Upload it as .jsonl if it is meant."
        )


def _check_frame(name: str, file: BinaryIO) -> None:
    size = file.seek(0, 2)
    file.seek(max(size - 8, 0))
    tail = file.read(8)
    if tail[4:] == ENCRYPTED_PARQUET_MAGIC:
        raise UnusableDataError(f"{name} is an encrypted Parquet file. Save it without encryption.")
    if size < 12 or tail[4:] != PARQUET_MAGIC:
        raise UnusableDataError(
            f"{name} does not end like a Parquet file: it was cut short. Upload the whole file."
        )
    footer_bytes = int.from_bytes(tail[:4], "little")
    if footer_bytes > min(size - 12, MOST_FOOTER_BYTES):
        raise UnusableDataError(
            f"{name} announces a footer of {footer_bytes:,} bytes; it has {size:,} bytes in all, and "
            f"{MOST_FOOTER_BYTES:,} are the most for a footer. Upload it again, or write it in fewer row groups."
        )


@contextmanager
def _plain_file(source: Source, compression: Compression) -> Iterator[BinaryIO]:
    if compression is Compression.NONE:
        with source.path.open("rb") as file:
            yield file
        return
    with PlainStream(source, compression) as stream, tempfile.TemporaryFile() as unpacked:
        size = 0
        while block := stream.read(BLOCK_BYTES):
            size += len(block)
            if size > MOST_UNPACKED_BYTES:
                raise UnusableDataError(
                    f"{source.name} holds a Parquet file of more than {MOST_UNPACKED_BYTES // 2**30} GiB. "
                    "Upload the Parquet file as it is: it is compressed inside."
                )
            unpacked.write(block)
        unpacked.flush()
        yield cast(BinaryIO, unpacked)


def _handle(source: Source, compression: Compression, file: BinaryIO) -> Any:
    """What the library reads from: a plain file by its own means, which is faster."""
    return str(source.path) if compression is Compression.NONE else file


@contextmanager
def _errors(name: str) -> Iterator[None]:
    """The library's errors about a broken file, of many kinds, become one of ours."""
    try:
        yield
    except UnusableDataError:
        raise
    except OSError as error:
        if error.errno is not None:  # the disk's error and not the file's
            raise
        raise _broken(name, error) from error
    except (
        pa.ArrowException,
        LyingPageError,
        ValueError,
        OverflowError,
        KeyError,
        IndexError,
        MemoryError,
    ) as error:
        raise _broken(name, error) from error


def _broken(name: str, error: BaseException) -> UnusableDataError:
    why = " ".join(str(error).split())[:200].rstrip(". ")
    if "encrypt" in why.lower() or "decrypt" in why.lower():
        return UnusableDataError(f"{name} is an encrypted Parquet file. Save it without encryption.")
    return UnusableDataError(f"{name} is a broken Parquet file ({why}). Write it again and upload that.")
