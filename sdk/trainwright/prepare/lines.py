"""Lines of a stream: bounded in length, with what each takes of the stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from trainwright.prepare.decompress import BLOCK_BYTES, PlainStream


class Line(NamedTuple):
    """One line, its line feed left out."""

    content: bytes | None
    """None when it is longer than asked for: it was skipped, unread."""

    size: int
    """Bytes it takes of the stream, its line feed included."""

    ends: int
    """1 when a line feed ended it, 0 when the stream did."""

    quotes: int = 0
    """Quotation marks in a line that was skipped."""


def read_lines(stream: PlainStream, most_bytes: int) -> Iterator[Line]:
    """The lines from the place where ``stream`` stands."""
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
    """Leave out the rest of a line that began with ``block``; returns it and what was read behind it."""
    size, quotes = 0, 0
    while block:
        head, ended, rest = block.partition(b"\n")
        size += len(head) + len(ended)
        quotes += head.count(b'"')
        if ended:
            return Line(None, size, 1, quotes), rest
        block = stream.read(BLOCK_BYTES)
    return Line(None, size, 0, quotes), b""
