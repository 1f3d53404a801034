"""Rows of a file, each with the position after it, where reading can continue."""

from __future__ import annotations

from typing import NamedTuple

from trainwright.contracts.base import Envelope
from trainwright.prepare.documents import Document, Rejected


class Position(Envelope):
    """A position between two rows of a file. Reading from it gives the same rows as reading from the beginning."""

    rows: int = 0
    """Rows of a table before it."""

    lines: int = 0
    """Line ends before it; of a Parquet file, rows."""

    offset: int = 0
    """Uncompressed bytes before it; in a Parquet file, the approximate size of the values (0 from older releases)."""


BLANK_LINES = 10_000
"""Consecutive blank lines after which a reader gives the position, although they are not rows."""


class Row(NamedTuple):
    """A document or a rejected row, and the position after it."""

    found: Document | Rejected | None
    """None for white space, so that a file that is mostly white space can also be read in parts."""

    rows: int
    lines: int
    offset: int
    stored_bytes: int
    """Bytes of the stored file that were consumed, for progress only."""

    @property
    def position(self) -> Position:
        return Position(rows=self.rows, lines=self.lines, offset=self.offset)
