"""Lines of a stream, bounded in length, with the bytes that each occupies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from trainwright.prepare.decompress import BLOCK_BYTES, PlainStream


class Line(NamedTuple):
    """One line, without its line feed."""

    content: bytes | None
    """None if the line exceeds the limit and was skipped."""

    size: int
    """Bytes of the line in the stream, including its line feed."""

    ends: int
    """1 if it ends with a line feed, 0 if it ends with the stream."""

    quotes: int = 0
    """Quotation marks in a skipped line."""


def read_lines(stream: PlainStream, most_bytes: int) -> Iterator[Line]:
    """The lines from the current position of ``stream``."""
    held = b""
    while block := stream.read(BLOCK_BYTES):
        *whole, held = (held + block).split(b"\n")
        for content in whole:
            size = len(content) + 1
            yield Line(content, size, 1) if size <= most_bytes + 1 else _skipped(content)
        if len(held) > most_bytes:
            line, held = _skip_on(stream, held)
            yield line
    if held:
        yield Line(held, len(held), 0)


def _skipped(content: bytes) -> Line:
    return Line(None, len(content) + 1, 1, content.count(b'"'))


def _skip_on(stream: PlainStream, block: bytes) -> tuple[Line, bytes]:
    """Skip the rest of a line that starts with ``block``; return the line and what was read after it."""
    size, quotes = 0, 0
    while block:
        head, ended, rest = block.partition(b"\n")
        size += len(head) + len(ended)
        quotes += head.count(b'"')
        if ended:
            return Line(None, size, 1, quotes), rest
        block = stream.read(BLOCK_BYTES)
    return Line(None, size, 0, quotes), b""
