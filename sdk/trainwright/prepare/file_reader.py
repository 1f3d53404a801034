"""Reads the documents of an uploaded file row by row, from any position.

    sniff ─▶ columns_of ─▶ resolve_field ─▶ read_rows

Each format has its own module; here the format and the field with the documents are chosen. Reading is a stream: no
file, line or row group has to fit into memory. A row without a document is yielded with the reason; a file that cannot
be read further raises an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice

from trainwright.contracts.api.uploads import Column
from trainwright.contracts.curation import FileFormat, ReadSpec
from trainwright.contracts.file_types import BYTE_ORDER_MARK, FileType
from trainwright.contracts.listing import listed
from trainwright.prepare.csv_rows import csv_rows, read_header
from trainwright.prepare.decompress import PlainStream
from trainwright.prepare.documents import DOCUMENT_BYTES, Document, Rejected, Source, UnusableDataError
from trainwright.prepare.field_values import MESSAGES, TEXT, NoDocumentError, type_word
from trainwright.prepare.json_rows import json_rows, parse_object
from trainwright.prepare.limits import MAX_COLUMNS
from trainwright.prepare.lines import read_lines
from trainwright.prepare.parquet_rows import parquet_columns, parquet_rows
from trainwright.prepare.rows import Position, Row
from trainwright.prepare.text_rows import text_rows

FIRST_ROWS = 100
FIRST_BYTES = 2**20
"""The fields of JSON Lines are those of the rows within these bounds."""
NAMES_LISTED = 20


def columns_of(source: Source, sniffed: FileType) -> list[Column]:
    """The columns, or the keys of the first rows. Empty for plain text.

    Raises:
        UnusableDataError: the start of the file is broken.
    """
    if sniffed.format is FileFormat.PARQUET:
        return parquet_columns(source, sniffed.compression)
    if sniffed.format is FileFormat.TEXT:
        return []
    with PlainStream(source, sniffed.compression) as stream:
        if sniffed.format is FileFormat.CSV:
            names = read_header(stream, source).columns
            return [Column(name=name, type=TEXT, usable=bool(name)) for name in names]
        return _keys(stream)


def resolve_field(columns: Sequence[Column], wanted: str | None) -> str | None:
    """The field with the documents: ``wanted``, otherwise `text`, otherwise `messages`.

    Raises:
        UnusableDataError: there is no such field, or it contains no documents.
    """
    if not columns:
        return wanted
    named = {column.name: column for column in columns}
    if wanted is not None:
        return _checked(wanted, named, columns)
    for name in (TEXT, MESSAGES):
        if name in named and named[name].usable:
            return _checked(name, named, columns)
    raise UnusableDataError(f"There is no field 'text' or 'messages'. {_choose(columns)}")


def read_rows(
    source: Source, sniffed: FileType, read: ReadSpec, start: Position | None = None
) -> Iterator[Document | Rejected]:
    """Documents and rejected rows in the order of the file, from ``start`` or the beginning.

    Raises:
        UnusableDataError: the file is broken, or has no such field.
    """
    rows = positioned_rows(source, sniffed, read, start)
    return (row.found for row in rows if row.found is not None)


def positioned_rows(
    source: Source, sniffed: FileType, read: ReadSpec, start: Position | None = None
) -> Iterator[Row]:
    """Like `read_rows`, with the position after each row."""
    place = Position() if start is None else start
    if sniffed.format is FileFormat.TEXT:
        with _stream_at(source, sniffed, place) as stream:
            yield from text_rows(stream, source.name, read.text_documents, place)
        return
    field = _field_of(source, sniffed, read)
    if sniffed.format is FileFormat.PARQUET:
        yield from parquet_rows(source, sniffed.compression, field, place)
    elif sniffed.format is FileFormat.JSON_LINES:
        with _stream_at(source, sniffed, place) as stream:
            yield from json_rows(stream, source.name, field, place)
    else:
        with PlainStream(source, sniffed.compression) as stream:
            header = read_header(stream, source)
        if start is None:
            place = Position(lines=header.lines, offset=header.offset)
        with _stream_at(source, sniffed, place) as stream:
            yield from csv_rows(stream, source, header, field, place)


@contextmanager
def _stream_at(source: Source, sniffed: FileType, place: Position) -> Iterator[PlainStream]:
    with PlainStream(source, sniffed.compression) as stream:
        stream.skip(place.offset)
        yield stream


def _field_of(source: Source, sniffed: FileType, read: ReadSpec) -> str:
    """Name of the field. A given field is checked only for CSV, whose header is read anyway."""
    if sniffed.format is not FileFormat.CSV and read.field is not None:
        return read.field
    try:
        return resolve_field(columns_of(source, sniffed), read.field) or TEXT
    except UnusableDataError as error:
        message = str(error)
        raise (
            error if message.startswith(source.name) else UnusableDataError(f"{source.name}: {message}")
        ) from None


def _keys(stream: PlainStream) -> list[Column]:
    """The keys of the first JSON objects. A key is usable if one of its values is a document.

    If there are very many keys, only the first ones and the default fields are listed.
    """
    words: dict[str, list[str]] = {}
    size = 0
    for line in islice(read_lines(stream, DOCUMENT_BYTES), FIRST_ROWS):
        content = (line.content or b"").removeprefix(BYTE_ORDER_MARK)
        try:
            record = parse_object(content) if content.strip() else {}
        except NoDocumentError:
            record = {}
        for key, value in record.items():
            if key in words or len(words) < MAX_COLUMNS or key in (TEXT, MESSAGES):
                words.setdefault(key, []).append(type_word(value))
        size += line.size
        if size > FIRST_BYTES:
            break
    return [_column(name, found) for name, found in words.items()]


def _column(name: str, words: list[str]) -> Column:
    # A key with a lone surrogate has no UTF-8: it can be neither shown nor chosen.
    sound = name.encode(errors="replace").decode() == name and 0 < len(name) <= 200
    word = next((usable for usable in (TEXT, MESSAGES) if usable in words), words[0])
    return Column(
        name=name.encode(errors="replace").decode()[:200],
        type=word,
        usable=sound and word in (TEXT, MESSAGES),
    )


def _checked(name: str, named: dict[str, Column], columns: Sequence[Column]) -> str:
    if name not in named:
        raise UnusableDataError(f"There is no field '{name}'. {_choose(columns)}")
    if sum(column.name == name for column in columns) > 1:
        raise UnusableDataError(f"Two columns are named '{name}'. Rename one of them.")
    if not named[name].usable:
        raise UnusableDataError(
            f"The field '{name}' has the type {named[name].type}, neither text nor chat messages. {_choose(columns)}"
        )
    return name


def _choose(columns: Sequence[Column]) -> str:
    usable = [f"'{column.name}'" for column in columns if column.usable]
    if not usable:
        return "No field contains text or chat messages."
    return f"Choose the field with the documents: {listed(usable, NAMES_LISTED)}."
