"""Plain text: a file is one document, or one document per block between blank lines.

Text that is longer than a document may be is split at the last line end that fits, otherwise after white space, otherwise
between two characters. Each split depends only on the bytes after the previous one, so reading can continue at any of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.contracts.curation import TextDocuments
from trainwright.contracts.file_types import BYTE_ORDER_MARK
from trainwright.prepare.decompress import BLOCK_BYTES, PlainStream
from trainwright.prepare.documents import DOCUMENT_BYTES, Document, Reason, Rejected
from trainwright.prepare.rows import Position, Row

BLANK_LINE = re.compile(rb"\n[ \t\r\f\v]*\n")
NOT_BLANK = re.compile(rb"[^ \t\r\n\f\v]")
BLANK = b" \t\r\n\f\v"
AHEAD_BYTES = 4 * BLOCK_BYTES


def text_rows(stream: PlainStream, name: str, cut: TextDocuments, start: Position) -> Iterator[Row]:
    """The rows of ``stream``, which is at ``start``. Blocks of white space have no document."""
    lines, offset = start.lines, start.offset
    for content in _blocks(stream, cut is TextDocuments.BLANK_LINE):
        at = 0 if cut is TextDocuments.FILE else _blank_before(content)
        found = _document(content[at:], name, lines + 1 + content.count(b"\n", 0, at), offset + at, cut)
        offset += len(content)
        lines += content.count(b"\n")
        yield Row(found, 0, lines, offset, stream.stored_bytes)


def _document(
    content: bytes, name: str, line: int, offset: int, cut: TextDocuments
) -> Document | Rejected | None:
    if offset == 0:
        content = content.removeprefix(BYTE_ORDER_MARK)
    if cut is TextDocuments.BLANK_LINE:
        content = content.rstrip(BLANK)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        bad_line = line + content.count(b"\n", 0, error.start)
        return Rejected(file=name, line=bad_line, reason=Reason.BAD_UTF8)
    return Document(text, line) if text and not text.isspace() else None


def _blank_before(content: bytes) -> int:
    """Start of the first line that is not blank."""
    blank = len(content) - len(content.lstrip(BLANK))
    return content.rfind(b"\n", 0, blank) + 1


def _blocks(stream: PlainStream, at_blank_lines: bool) -> Iterator[bytes]:
    """Consecutive blocks of the stream, one per document, each at most as long as a document may be."""
    held, at, has_ended = b"", 0, False
    while True:
        if not has_ended and len(held) - at <= DOCUMENT_BYTES:
            more = stream.read(DOCUMENT_BYTES + AHEAD_BYTES - (len(held) - at))
            held, at, has_ended = held[at:] + more, 0, not more
        if at == len(held):
            return
        end = min(len(held), at + DOCUMENT_BYTES)
        blank = BLANK_LINE.search(held, at, end) if at_blank_lines else None
        if blank is not None:
            end = _after_blank_lines(held, blank.end(), end)
        elif end < len(held):
            end = _cut(held, at, end)
        yield held[at:end]
        at = end


def _after_blank_lines(content: bytes, start: int, end: int) -> int:
    """Start of the first line at or after ``start`` that is not blank."""
    word = NOT_BLANK.search(content, start, end)
    return end if word is None else max(content.rfind(b"\n", start, word.start()) + 1, start)


def _cut(content: bytes, start: int, end: int) -> int:
    """The best position to split ``content``, after ``start`` and not after ``end``."""
    line_end = content.rfind(b"\n", start, end) + 1
    if line_end:
        return line_end
    space = max(content.rfind(letter, start, end) for letter in (b" ", b"\t", b"\r", b"\f", b"\v")) + 1
    if space:
        return space
    cut = end
    while cut > end - 3 and content[cut] & 0xC0 == 0x80:  # a byte that continues a character
        cut -= 1
    return cut if content[cut] & 0xC0 != 0x80 else end
