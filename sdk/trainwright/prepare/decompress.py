"""Streaming decompression with limits: a small file that expands to terabytes causes an error and does not fill the
disk.

Supports gzip and Zstandard, with any number of members or frames. Memory is bounded for any input: gzip returns at most 1 MiB
at a time; Zstandard gets 256 bytes at a time, which can expand to at most 8 MiB. Nothing is unpacked to disk here, and the
content is interpreted by `file_reader`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Protocol, Self

import zstandard

from trainwright.contracts.curation import Compression
from trainwright.prepare.documents import Source, UnusableDataError
from trainwright.prepare.limits import FREE_BYTES, MAX_BYTES, MAX_RATIO

WINDOW_BYTES = 128 * 2**20
"""Most memory that a Zstandard frame may require."""
BLOCK_BYTES = 2**20
MAX_EMPTY_MEMBERS = 100_000
"""Empty members cost time and yield no row at which reading could stop. Writers add at most one per file."""
ZSTANDARD_STEP_BYTES = 2**8


class PlainStream:
    """The decompressed bytes of a stored file."""

    def __init__(self, source: Source, compression: Compression) -> None:
        self._name = source.name
        self._file = source.path.open("rb")
        self._fed = 0
        self._made = 0
        self._held = b""
        self._blocks: Iterator[bytes] = {
            Compression.NONE: self._plain,
            Compression.GZIP: self._gzip,
            Compression.ZSTANDARD: self._zstandard,
        }[compression]()
        self._seekable = compression is Compression.NONE

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    @property
    def stored_bytes(self) -> int:
        """Bytes of the stored file that were consumed so far."""
        return self._fed

    def read(self, size: int) -> bytes:
        """Up to ``size`` bytes, fewer only at the end.

        Raises:
            UnusableDataError: the compressed bytes are broken, cut short or beyond the budgets.
        """
        parts, missing = [self._held], size - len(self._held)
        while missing > 0:
            block = next(self._blocks, b"")
            if not block:
                break
            parts.append(block)
            missing -= len(block)
        content = b"".join(parts)
        self._held = content[size:]
        return content[:size] if self._held else content

    def skip(self, size: int) -> None:
        """Skip the next ``size`` bytes."""
        if self._seekable and not self._fed:
            self._file.seek(size)
            self._fed = size
            return
        while size > 0 and (block := self.read(min(size, BLOCK_BYTES))):
            size -= len(block)

    def _plain(self) -> Iterator[bytes]:
        while block := self._file.read(BLOCK_BYTES):
            self._fed += len(block)
            yield block

    def _gzip(self) -> Iterator[bytes]:
        yield from self._members("gzip", _Gzip, BLOCK_BYTES // 16)

    def _zstandard(self) -> Iterator[bytes]:
        yield from self._members("Zstandard", _Zstandard, ZSTANDARD_STEP_BYTES)

    def _members(self, kind: str, begin: type[_Gzip] | type[_Zstandard], step_bytes: int) -> Iterator[bytes]:
        """Blocks of output of all members."""
        member: _Member | None = None
        made_before, empty_members = 0, 0
        for given in self._steps(step_bytes):
            self._fed += len(given)
            while given:
                if member is None:
                    given = given.lstrip(b"\0")  # padding of tapes and block devices
                    if not given:
                        break
                    member, made_before = begin(), self._made
                try:
                    block, given = member.feed(given)
                except (zlib.error, zstandard.ZstdError, MemoryError) as error:
                    raise self._broken(kind, str(error)) from error
                if block:
                    self._count(block, kind, len(given))
                    yield block
                if member.ended:
                    member = None
                    empty_members += self._made == made_before
                    if empty_members > MAX_EMPTY_MEMBERS:
                        raise UnusableDataError(
                            f"{self._name} contains more than {MAX_EMPTY_MEMBERS:,} empty {kind} members. "
                            "Compress it again."
                        )
        if member is not None:
            raise UnusableDataError(
                f"{self._name} ends in the middle of its {kind} data, after {self._made:,} decompressed bytes: "
                "it was cut short. Upload the whole file."
            )

    def _steps(self, step_bytes: int) -> Iterator[bytes]:
        while block := self._file.read(BLOCK_BYTES):
            for start in range(0, len(block), step_bytes):
                yield block[start : start + step_bytes]

    def _count(self, block: bytes, kind: str, unused_bytes: int) -> None:
        self._made += len(block)
        allowed = min(MAX_BYTES, FREE_BYTES + MAX_RATIO * (self._fed - unused_bytes))
        if self._made > allowed:
            raise UnusableDataError(
                f"{self._name} expands from {self._fed:,} bytes of {kind} data to more than {allowed:,} bytes, more than "
                f"{MAX_RATIO} to 1. Text does not compress so well. If this is intended, upload it uncompressed."
            )

    def _broken(self, kind: str, why: str) -> UnusableDataError:
        if "memory" in why.lower():  # libzstd's message for a window beyond the limit
            return UnusableDataError(
                f"{self._name} needs a Zstandard window of more than {WINDOW_BYTES // 2**20} MiB. "
                "Compress it without --long or --ultra."
            )
        return UnusableDataError(
            f"{self._name} contains broken {kind} data after {self._made:,} decompressed bytes ({why}). Upload it again."
        )


class _Member(Protocol):
    ended: bool

    def feed(self, given: bytes) -> tuple[bytes, bytes]:
        """Some output, and the remaining input."""


class _Gzip:
    """One member; its checksum is verified by zlib."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=31)
        self.ended = False

    def feed(self, given: bytes) -> tuple[bytes, bytes]:
        block = self._inner.decompress(given, BLOCK_BYTES)
        self.ended = self._inner.eof
        return block, self._inner.unused_data if self.ended else self._inner.unconsumed_tail


class _Zstandard:
    """One frame, possibly skippable; its checksum is verified by libzstd."""

    def __init__(self) -> None:
        self._inner = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES).decompressobj()
        self.ended = False

    def feed(self, given: bytes) -> tuple[bytes, bytes]:
        block = self._inner.decompress(given)
        self.ended = self._inner.eof
        return block, self._inner.unused_data if self.ended else b""
