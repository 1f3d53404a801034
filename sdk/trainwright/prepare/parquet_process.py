"""Reads a Parquet file in a separate process:
``python -m trainwright.prepare.parquet_process columns|values … < file``.

Some broken files make the Parquet library abort its process, and others make it allocate any amount of memory. So it
runs here, in a separate process with a memory limit; `parquet_rows` starts it and reads its output:

- ``columns``: a JSON list of name, type and whether it can be a document, for each top-level column;
- ``values FIELD ROW``: an Arrow stream of one column, from that row on. Only this column is read, page by
  page, after the page headers were checked against the file; each page is decompressed completely.

If the file is at fault, the last line of standard error says why, and the exit status is `WRONG`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from trainwright.prepare.limits import MAX_COLUMNS
from trainwright.prepare.parquet_pages import largest_page_bytes

WRONG = 3
"""Exit status if the file is at fault."""
ROWS = b"rows"
"""Key, in the metadata of the stream, of the number of rows in the file."""
MEMORY_BYTES = 4 * 2**30
"""Limit of the address space. The libraries alone take 1 GiB."""
MAGIC, ENCRYPTED_MAGIC = b"PAR1", b"PARE"
MAX_FOOTER_BYTES = 64 * 2**20
BUFFER_BYTES = 2**20
MAX_ROWS_AT_ONCE = 256
BATCH_BYTES = 128 * 2**20
"""Values reach the length of a page at most, so a batch holds as many rows as pages go into this."""
TEXT, MESSAGES = "text", "messages"
ENCRYPTED = "it is encrypted. Save it without encryption."


class WrongError(Exception):
    """The file's error and its remedy."""


def main(arguments: list[str]) -> int:
    """Process the file on standard input."""
    _limit_memory()
    file, out = sys.stdin.buffer, sys.stdout.buffer
    try:
        _check_frame(file)
        file.seek(0)
        with pq.ParquetFile(file, buffer_size=BUFFER_BYTES, pre_buffer=False) as table:
            if arguments[0] == "columns":
                out.write(json.dumps(_columns(table)).encode())
            else:
                write_values(table, file, out, arguments[1], int(arguments[2]))
    except BrokenPipeError:
        return 0  # the parent has stopped reading
    except WrongError as error:
        return _say(str(error))
    except (pa.ArrowException, OSError, ValueError, OverflowError, LookupError, MemoryError) as error:
        why = " ".join(str(error).split())[:200].rstrip(". ")
        encrypted = "encrypt" in why.lower() or "decrypt" in why.lower()
        return _say(ENCRYPTED if encrypted else f"it is broken ({why}). Write it again and upload that.")
    return 0


def write_values(table: pq.ParquetFile, file: BinaryIO, out: BinaryIO, field: str, skipped: int) -> None:
    """Write the values of ``field``, from row ``skipped`` on, to ``out``."""
    if [column["usable"] for column in _columns(table) if column["name"] == field] != [True]:
        raise WrongError(
            f"it has no column '{field}' of texts or chat messages, or several. Choose another field."
        )
    kind = _plain(table.schema_arrow.field(field).type)
    schema = pa.schema([(field, kind)], {ROWS: str(table.metadata.num_rows)})
    with pa.ipc.new_stream(out, schema) as stream:
        first = 0
        for number in range(table.metadata.num_row_groups):
            rows = table.metadata.row_group(number).num_rows
            if first + rows > skipped:
                for column in _of_group(table, file, field, number, max(skipped - first, 0)):
                    stream.write_batch(pa.record_batch([column], schema))
            first += rows


def _of_group(
    table: pq.ParquetFile, file: BinaryIO, field: str, number: int, skipped: int
) -> Iterator[pa.Array]:
    at_once = max(1, min(MAX_ROWS_AT_ONCE, BATCH_BYTES // max(_largest_page(table, file, field, number), 1)))
    row = 0
    for batch in table.iter_batches(at_once, row_groups=[number], columns=[field], use_threads=False):
        if row + len(batch) > skipped:
            column = batch.column(field).slice(max(skipped - row, 0))
            yield column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        row += len(batch)
    announced = table.metadata.row_group(number).num_rows
    if row != announced:
        raise WrongError(
            f"its row group {number} states {announced:,} rows but contains {row:,}. Write it again and upload that."
        )


def _largest_page(table: pq.ParquetFile, file: BinaryIO, field: str, number: int) -> int:
    """Decompressed bytes of the largest page of ``field`` in a row group."""
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
        if start < len(MAGIC) or stored_bytes < 0 or start + stored_bytes > size:
            raise ValueError(
                f"a column states {stored_bytes:,} bytes at {start:,}, beyond the end of the file"
            )
        largest = max(largest, largest_page_bytes(file, start, stored_bytes))
    return largest


def _columns(table: pq.ParquetFile) -> list[dict[str, Any]]:
    if len(table.schema_arrow) > MAX_COLUMNS:
        raise WrongError(
            f"it has {len(table.schema_arrow):,} columns, more than {MAX_COLUMNS:,}. Write only the column with the "
            "documents."
        )
    words = [(field.name, _word(field.type)) for field in table.schema_arrow]
    return [{"name": name, "type": word, "usable": word in (TEXT, MESSAGES)} for name, word in words]


def _word(kind: pa.DataType) -> str:
    """`text`, `messages`, or the library's type name."""
    kind = _plain(kind)
    if _is_text(kind):
        return TEXT
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = kind.value_type
        if pa.types.is_struct(inner) and {"role", "content"} <= {field.name for field in inner.fields}:
            return MESSAGES
    return str(kind)[:80]


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_text(kind: pa.DataType) -> bool:
    # Older writers do not mark which binary columns are text.
    tests = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_string_view,
        pa.types.is_binary,
        pa.types.is_large_binary,
    )
    return any(test(kind) for test in tests)


def _check_frame(file: BinaryIO) -> None:
    size = file.seek(0, 2)
    file.seek(max(size - 8, 0))
    tail = file.read(8)
    if tail[4:] == ENCRYPTED_MAGIC:
        raise WrongError(ENCRYPTED)
    if size < 12 or tail[4:] != MAGIC:
        raise WrongError("it does not end like a Parquet file: it was cut short. Upload the whole file.")
    footer_bytes = int.from_bytes(tail[:4], "little")
    if footer_bytes > min(size - 12, MAX_FOOTER_BYTES):
        raise WrongError(
            f"it states a footer of {footer_bytes:,} bytes, but has {size:,} bytes in total, and a footer can have at most "
            f"{MAX_FOOTER_BYTES:,}. Upload it again, or write it in fewer row groups."
        )


def _limit_memory() -> None:
    try:
        import resource
    except ImportError:  # Windows has no such limits
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(hard, MEMORY_BYTES)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _say(what: str) -> int:
    print(what, file=sys.stderr)
    return WRONG


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
