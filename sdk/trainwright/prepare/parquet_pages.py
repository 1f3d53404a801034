"""Checks the pages of a Parquet column before they are decompressed.

A page header states the compressed and uncompressed size, and the library trusts it: a small file could require
gigabytes. So all page headers of a column are read first, each a struct in Thrift's compact protocol (parquet.thrift,
`PageHeader`), and their sizes are checked against the file and the budgets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from trainwright.prepare.limits import FREE_BYTES, MAX_RATIO

MAX_PAGE_BYTES = 2**30
"""Most decompressed bytes of one page, which is decompressed at once."""
MAX_PAGES = 1_000_000
WINDOW_BYTES = 2**10
MAX_HEADER_BYTES = 16 * 2**20
MAX_DEPTH = 8

UNCOMPRESSED_FIELD, COMPRESSED_FIELD = 2, 3
STOP, TRUE, FALSE, BYTE, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = 0, 1, 2, 3, 7, 8, 9, 10, 11, 12
INTEGERS = (4, 5, 6)


class InvalidPageError(ValueError):
    """The header of a page is impossible."""


def largest_page_bytes(file: BinaryIO, start: int, size: int) -> int:
    """Decompressed bytes of the largest page in the column of ``size`` stored bytes at ``start``.

    Raises:
        InvalidPageError: the pages do not fit the column or the budgets.
    """
    largest = 0
    for pages, (plain_bytes, stored_bytes) in enumerate(_pages(file, start, start + size)):
        if not 0 <= plain_bytes <= min(MAX_PAGE_BYTES, FREE_BYTES + MAX_RATIO * stored_bytes):
            raise InvalidPageError(
                f"a page states {plain_bytes:,} decompressed bytes in {stored_bytes:,} stored ones"
            )
        if pages >= MAX_PAGES:
            raise InvalidPageError(f"a column has more than {MAX_PAGES:,} pages")
        largest = max(largest, plain_bytes)
    return largest


def _pages(file: BinaryIO, at: int, end: int) -> Iterator[tuple[int, int]]:
    while at < end:
        header_bytes, plain_bytes, stored_bytes = _header(file, at, end)
        at += header_bytes + stored_bytes
        if stored_bytes < 0 or at > end:
            raise InvalidPageError(
                f"a page states {stored_bytes:,} stored bytes, more than the column has left"
            )
        yield plain_bytes, stored_bytes


def _header(file: BinaryIO, at: int, end: int) -> tuple[int, int, int]:
    """Length of a page header, and the sizes that it states."""
    window = WINDOW_BYTES
    while True:
        file.seek(at)
        cursor = _Cursor(file.read(min(window, end - at)))
        try:
            fields = cursor.integers_of_struct()
            return cursor.at, fields[UNCOMPRESSED_FIELD], fields[COMPRESSED_FIELD]
        except IndexError:
            window *= 8
            if window > MAX_HEADER_BYTES or len(cursor.content) == end - at:
                raise InvalidPageError("the header of a page never ends") from None
        except KeyError:
            raise InvalidPageError("the header of a page states no length") from None


class _Cursor:
    """Reads Thrift's compact protocol; raises IndexError if the bytes end too early."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.at = 0

    def integers_of_struct(self, depth: int = 0) -> dict[int, int]:
        """The integer fields of a struct by number; the others are skipped."""
        if depth > MAX_DEPTH:
            raise InvalidPageError("the header of a page is nested too deeply")
        found: dict[int, int] = {}
        number = 0
        while (head := self._byte()) != STOP:
            kind, step = head & 15, head >> 4
            number = number + step if step else self._integer()
            if kind in INTEGERS:
                found[number] = self._integer()
            else:
                self._pass_over(kind, depth, is_field=True)
        return found

    def _pass_over(self, kind: int, depth: int, is_field: bool) -> None:
        if kind in (TRUE, FALSE):
            self.at += 0 if is_field else 1
        elif kind == BYTE:
            self.at += 1
        elif kind in INTEGERS:
            self._varint()
        elif kind == DOUBLE:
            self.at += 8
        elif kind == BINARY:
            length = self._varint()
            self.at += length
        elif kind in (LIST, SET):
            self._pass_over_list(depth)
        elif kind == STRUCT:
            self.integers_of_struct(depth + 1)
        else:
            raise InvalidPageError("the header of a page contains an unknown type")
        if self.at > len(self.content):
            raise IndexError

    def _pass_over_list(self, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise InvalidPageError("the header of a page is nested too deeply")
        head = self._byte()
        count = self._varint() if head >> 4 == 15 else head >> 4
        for _ in range(min(count, len(self.content) + 1)):
            self._pass_over(head & 15, depth + 1, is_field=False)

    def _byte(self) -> int:
        byte = self.content[self.at]
        self.at += 1
        return byte

    def _varint(self) -> int:
        value, shift = 0, 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
            if shift > 63:
                raise InvalidPageError("the header of a page contains a number without an end")

    def _integer(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
