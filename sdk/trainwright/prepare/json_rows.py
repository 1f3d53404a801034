"""JSON Lines: one JSON object per line, with the document in one of its fields."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from trainwright.contracts.file_types import BYTE_ORDER_MARK
from trainwright.prepare.decompress import PlainStream
from trainwright.prepare.documents import DOCUMENT_BYTES, Document, Reason, Rejected
from trainwright.prepare.field_values import NoDocumentError, document_text
from trainwright.prepare.lines import read_lines
from trainwright.prepare.rows import BLANK_LINES, Position, Row

MANY_BRACES = 100_000
MAX_OBJECTS = 500_000
"""A line with more objects is rejected: each object takes over 200 bytes of memory, but only 3 of the file."""


def json_rows(stream: PlainStream, name: str, field: str, start: Position) -> Iterator[Row]:
    """The rows of ``stream``, which is at ``start``. Blank lines are not rows."""
    lines, offset, blank_lines = start.lines, start.offset, 0
    for content, size, ends, _ in read_lines(stream, DOCUMENT_BYTES):
        if content is not None and offset == 0:
            content = content.removeprefix(BYTE_ORDER_MARK)
        offset += size
        number, lines = lines + 1, lines + ends
        if content is not None and not content.strip():
            blank_lines += 1
            if blank_lines == BLANK_LINES:
                blank_lines = 0
                yield Row(None, 0, lines, offset, stream.stored_bytes)
            continue
        blank_lines = 0
        found: Document | Rejected
        try:
            found = Document(document_text(_value(content, field), field), number)
        except NoDocumentError as error:
            found = Rejected(file=name, line=number, reason=str(error))
        yield Row(found, 0, lines, offset, stream.stored_bytes)


def parse_object(content: bytes | None) -> dict[str, Any]:
    """The JSON object in a line.

    Raises:
        NoDocumentError: there is none.
    """
    if content is None:
        raise NoDocumentError(Reason.TOO_LONG)
    try:
        text = content.decode()
        hook = _Counter() if content.count(b"{") > MANY_BRACES else None
        record = json.loads(text, object_hook=hook)
    except UnicodeDecodeError:
        raise NoDocumentError(Reason.BAD_UTF8) from None
    except (ValueError, RecursionError):
        raise NoDocumentError(Reason.BAD_JSON) from None
    if not isinstance(record, dict):
        raise NoDocumentError(Reason.BAD_JSON)
    return record


def _value(content: bytes | None, field: str) -> object:
    record = parse_object(content)
    if field not in record:
        raise NoDocumentError(f"has no field '{field}'")
    return record[field]


class _Counter:
    """Stops parsing a line with too many objects."""

    def __init__(self) -> None:
        self._left = MAX_OBJECTS

    def __call__(self, record: dict[str, Any]) -> dict[str, Any]:
        self._left -= 1
        if self._left < 0:
            raise ValueError("too many objects")
        return record
