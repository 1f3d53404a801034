"""CSV: a header line with the names of the columns, then rows, with the document in one column.

Quoted cells may contain delimiters, quotation marks (doubled) and line ends. The delimiter is the most frequent one of comma,
tab, semicolon and bar in the header. Python's reader parses the lines; this module adds bounds: a row whose quotation never
ends is skipped and rejected, in bounded memory.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from trainwright.contracts.file_types import BYTE_ORDER_MARK, suffix_of_name
from trainwright.prepare.decompress import PlainStream
from trainwright.prepare.documents import Document, Reason, Rejected, Source, UnusableDataError
from trainwright.prepare.field_values import NoDocumentError, document_text
from trainwright.prepare.limits import MAX_COLUMNS
from trainwright.prepare.lines import Line, read_lines
from trainwright.prepare.rows import BLANK_LINES, Position, Row

ROW_BYTES = 16 * 2**20
"""Longer rows are rejected, so that memory is bounded for any file."""
DELIMITERS = ",\t;|"

# Python limits cells to 128 KiB for the entire process; rows are limited here instead.
csv.field_size_limit(ROW_BYTES)


class CsvReader(Protocol):
    def __next__(self) -> list[str]: ...


@dataclass(frozen=True)
class Header:
    """How to read the rows."""

    columns: list[str]
    delimiter: str
    lines: int
    offset: int
    """Position after the header."""


def read_header(stream: PlainStream, source: Source) -> Header:
    """The header of ``stream``, which is at its beginning.

    Raises:
        UnusableDataError: it has no readable header.
    """
    feed = _Feed(read_lines(stream, ROW_BYTES), Position())
    first = feed.peek()
    delimiter = _delimiter(first, suffix_of_name(source.name))
    try:
        columns = [cell.strip() for cell in next(_reader(feed, delimiter), [])]
        "".join(columns).encode()
    except (csv.Error, UnicodeEncodeError) as error:
        raise UnusableDataError(
            f"{source.name}: the header cannot be read ({error}). Save the table as CSV in UTF-8."
        ) from error
    if feed.too_long or len(columns) > MAX_COLUMNS:
        raise UnusableDataError(
            f"{source.name}: the header is too long for one of CSV. Its first line must name the columns."
        )
    if not any(columns):
        raise UnusableDataError(
            f"{source.name}: there is no header. The first line of a CSV file must name the columns."
        )
    return Header(columns, delimiter, feed.lines, feed.offset)


def csv_rows(
    stream: PlainStream, source: Source, header: Header, field: str, start: Position
) -> Iterator[Row]:
    """The rows of ``stream``, which is at ``start``, after the header. Blank lines are not rows."""
    feed = _Feed(read_lines(stream, ROW_BYTES), start)
    reader = _reader(feed, header.delimiter)
    column, rows, blank_lines = header.columns.index(field), start.rows, 0
    while True:
        feed.begin()
        try:
            cells = next(reader, None)
        except csv.Error:
            cells = []
            feed.broken = True
        if cells is None:
            return
        if feed.too_long:
            feed.skip_row()
        if feed.unclosed:
            raise UnusableDataError(
                f"{source.name}: the quotation that begins in the row of line {feed.first_line:,} never ends. "
                "Close it, or double a quotation mark that belongs to the text."
            )
        if not feed.too_long and not cells and not feed.broken:
            blank_lines += 1
            if blank_lines == BLANK_LINES:
                blank_lines = 0
                yield Row(None, rows, feed.lines, feed.offset, stream.stored_bytes)
            continue
        blank_lines = 0
        rows += 1
        found = _found(cells, feed, header, column, source.name)
        yield Row(found, rows, feed.lines, feed.offset, stream.stored_bytes)


def _found(cells: list[str], feed: _Feed, header: Header, column: int, name: str) -> Document | Rejected:
    line = feed.first_line
    if feed.too_long:
        return Rejected(file=name, line=line, reason=Reason.TOO_LONG)
    if feed.broken:
        return Rejected(file=name, line=line, reason=Reason.BAD_ROW)
    if len(cells) != len(header.columns):
        return Rejected(file=name, line=line, reason=Reason.WRONG_CELLS)
    try:
        return Document(document_text(cells[column], header.columns[column]), line)
    except NoDocumentError as error:
        return Rejected(file=name, line=line, reason=str(error))


def _delimiter(first: Line | None, kind: str) -> str:
    content = b"" if first is None or first.content is None else first.content
    if kind == ".tsv" and b"\t" in content:
        return "\t"
    return max(DELIMITERS, key=lambda letter: content.count(letter.encode()))


def _reader(feed: _Feed, delimiter: str) -> CsvReader:
    return csv.reader(feed, delimiter=delimiter)


class _Feed:
    """Passes lines to Python's reader, which requests as many as a row has, and keeps track of the position.

    A row that gets too long is ended by an artificial quotation mark; `skip_row` skips the rest of it.
    """

    def __init__(self, lines: Iterator[Line], start: Position) -> None:
        self._source = lines
        self._next: Line | None = None
        self.lines = start.lines
        self.offset = start.offset
        self.begin()

    def begin(self) -> None:
        """Start a new row."""
        self.first_line = self.lines + 1
        self.too_long = False
        self.broken = False
        self.unclosed = False
        self._row_bytes = 0
        self._quoted = False

    def peek(self) -> Line | None:
        self._next = next(self._source, None)
        return self._next

    def __iter__(self) -> _Feed:
        return self

    def __next__(self) -> str:
        line = self._take()
        if line is None:
            self.unclosed = self._row_bytes > 0
            raise StopIteration
        content = line.content
        self._row_bytes += line.size
        if content is None or self._row_bytes > ROW_BYTES:
            self.too_long = True
            quotes = line.quotes if content is None else content.count(b'"')
            # Within a row, the reader requests another line only if a quotation is open.
            self._quoted = (self._row_bytes > line.size) != bool(quotes % 2)
            return '"' if self._row_bytes > line.size else ""
        if self.offset == line.size:
            content = content.removeprefix(BYTE_ORDER_MARK)
        text = content.decode(errors="surrogateescape")
        return text + "\n" if line.ends else text

    def skip_row(self) -> None:
        """Skip the rest of a row that is too long, up to a line at whose end no quotation is open."""
        while self._quoted and (line := self._take()) is not None:
            quotes = line.quotes if line.content is None else line.content.count(b'"')
            self._quoted ^= bool(quotes % 2)
        self.unclosed = self._quoted

    def _take(self) -> Line | None:
        line, self._next = self._next, None
        if line is None:
            line = next(self._source, None)
        if line is not None:
            self.lines += line.ends
            self.offset += line.size
        return line
