"""Documents: the texts of a dataset, and the numbers in 0..1 by which single ones are chosen.

A document is one text of at most 8 MiB of UTF-8. What cannot become one is rejected with its line and the reason, and
never dropped in silence. Which split, sample or mixture a document belongs to follows from a hash of its text alone:
equal texts fare alike, and neither the order of the files nor their number moves a document.

This module opens no file: `reading` makes documents of files, `pieces` keeps them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from trainwright.contracts.base import Envelope

DOCUMENT_BYTES = 8 * 2**20
"""Most UTF-8 of one document."""
HASH_BYTES = 16


class UnusableDataError(ValueError):
    """The files themselves are at fault: trying again gives the same."""


@dataclass(frozen=True)
class Source:
    """One file of a dataset version: the name people gave it, and where its bytes lie."""

    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class Document:
    """One text, and the line or row at which it begins, from 1."""

    text: str
    line: int


class Reason(StrEnum):
    """Why a line or row is no document, where that needs no name of a field."""

    BAD_JSON = "is not a JSON object"
    BAD_ROW = "cannot be read as a row of a table"
    WRONG_CELLS = "has another number of cells than the header"
    EMPTY = "is empty"
    BAD_UTF8 = "is not valid UTF-8"
    TOO_LONG = "is longer than 8 MiB"
    BAD_MESSAGE = "holds a message without role or content"


class Rejected(Envelope):
    """A line or row that gave no document."""

    file: str
    """Name of the source."""

    line: int
    """Line or row at which it begins, from 1."""

    reason: str
    """Goes on from "line 7 …"."""


def hash_of(content: bytes) -> bytes:
    """By what a document is told from others: the first 16 bytes of the SHA-256 of its UTF-8."""
    return hashlib.sha256(content).digest()[:HASH_BYTES]


def is_validation(text: str, fraction: float) -> bool:
    """Whether a document is held out: true for ``fraction`` of all texts, always the same ones."""
    return _number(text, 0) < fraction


def sample_rank(text: str) -> float:
    """A number in 0..1 by which documents are chosen for a sample; independent of the split."""
    return _number(text, 8)


def mix_ranks(hashes: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Numbers in 0..1, 1 excluded, by which documents are chosen for a mixture; independent of split and sample.

    Args:
        hashes: shape (n, 16), as `hash_of` gives them.
    """
    halves = np.ascontiguousarray(hashes).view(">u8").astype(np.uint64)
    mixed = halves[:, 0] + halves[:, 1] * np.uint64(0x9E3779B97F4A7C15)
    # The finalizer of splitmix64: each bit of the result hangs on every bit of both halves.
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed = (mixed ^ (mixed >> np.uint64(31))) >> np.uint64(11)
    ranks: NDArray[np.float64] = mixed / np.float64(2**53)
    return ranks


def _number(text: str, offset: int) -> float:
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[offset : offset + 8], "big") / 2**64


SLICE_BYTES = 32 * 2**20
LINE_BYTES = 8 * 2**20
PROSE_BYTES = 64 * 2**10


class Slice(Envelope):
    """A stretch of one file; of ``.jsonl``, whole lines."""

    index: int
    file: str
    start: int
    end: int


def plan_slices(sources: Sequence[Source], slice_bytes: int = SLICE_BYTES) -> list[Slice]:
    """Cut ``sources`` into slices; a pure function of the files' names, order and bytes.

    Raises:
        UnusableDataError: a file is neither ``.jsonl`` nor ``.txt``, or two have the same name.
    """
    _check_names(sources)
    slices: list[Slice] = []
    for source in sources:
        for start, end in _cuts(source, slice_bytes):
            slices.append(Slice(index=len(slices), file=source.name, start=start, end=end))
    return slices


def read_documents(source: Source, part: Slice) -> Iterator[Document | Rejected]:
    """The documents of one slice, in order; the line numbers of rejected lines count from the slice's first line."""
    with source.path.open("rb") as file:
        file.seek(part.start)
        if _is_prose(source.name):
            yield from _prose(source.name, _pieces(file, part.end))
        else:
            yield from _json_lines(source.name, _lines(file, part.end))


def count_lines(source: Source, part: Slice) -> int:
    """Line ends in a slice, by which later slices of the file number their lines."""
    with source.path.open("rb") as file:
        file.seek(part.start)
        count, left = 0, part.end - part.start
        while left and (block := file.read(min(left, 2**20))):
            count, left = count + block.count(b"\n"), left - len(block)
    return count


def _check_names(sources: Sequence[Source]) -> None:
    names = [source.name for source in sources]
    for name in names:
        if not name.lower().endswith((".jsonl", ".txt")):
            raise UnusableDataError(f"{name}: a dataset's files must end in .jsonl or .txt")
        if names.count(name) > 1:
            raise UnusableDataError(f"{name}: two files have this name")


def _is_prose(name: str) -> bool:
    return name.lower().endswith(".txt")


def _cuts(source: Source, slice_bytes: int) -> Iterator[tuple[int, int]]:
    size = source.path.stat().st_size
    skip = _skip_piece if _is_prose(source.name) else _skip_line
    with source.path.open("rb") as file:
        start = 0
        while start < size:
            file.seek(min(start + slice_bytes - 1, size))
            skip(file)
            end = min(file.tell(), size)
            yield start, end
            start = end


def _skip_line(file: BinaryIO) -> None:
    while (block := file.readline(2**20)) and not block.endswith(b"\n"):
        pass


def _skip_piece(file: BinaryIO) -> None:
    """Go to the next place where prose may be cut."""
    start = file.tell()
    piece = file.readline(PROSE_BYTES)
    if len(piece) == PROSE_BYTES:
        file.seek(start + _cut(piece))


def _pieces(file: BinaryIO, end: int) -> Iterator[tuple[int, bytes]]:
    """Prose up to offset ``end`` with line numbers: whole lines, and parts of those longer than a document."""
    number = 1
    while (start := file.tell()) < end:
        piece = file.readline(min(PROSE_BYTES, end - start))
        if len(piece) == PROSE_BYTES:
            piece = piece[: _cut(piece)]
            file.seek(start + len(piece))
        yield number, piece.removeprefix(b"\xef\xbb\xbf") if start == 0 else piece
        number += piece.endswith(b"\n")


def _cut(text: bytes) -> int:
    """Where ``text`` is best cut: after its last white space, else before its last character of several bytes."""
    after_space = max(text.rfind(space) for space in (b"\n", b" ", b"\t", b"\r")) + 1
    if after_space:
        return after_space
    end = len(text)
    while end > 1 and text[end - 1] & 0xC0 == 0x80:  # a byte that goes on with a character
        end -= 1
    return end - 1 if end > 1 and text[end - 1] >= 0xC0 else len(text)


def _lines(file: BinaryIO, end: int) -> Iterator[bytes | None]:
    """Lines up to offset ``end``, without their line feeds; None stands for one that is too long."""
    first = file.tell() == 0
    while file.tell() < end:
        line = file.readline(LINE_BYTES + 1)
        if len(line) > LINE_BYTES and not line.endswith(b"\n"):
            _skip_line(file)
            yield None
        else:
            yield line.removeprefix(b"\xef\xbb\xbf") if first else line
        first = False


def _json_lines(name: str, lines: Iterator[bytes | None]) -> Iterator[Document | Rejected]:
    for number, line in enumerate(lines, start=1):
        if line is not None and not line.strip():
            continue
        found = Reason.TOO_LONG if line is None else _text_of(line)
        yield (
            Document(found, 0)
            if not isinstance(found, Reason)
            else Rejected(file=name, line=number, reason=found)
        )


def _text_of(line: bytes) -> str | Reason:
    try:
        record = json.loads(line.decode())
    except UnicodeDecodeError:
        return Reason.BAD_UTF8
    except (ValueError, RecursionError):
        return Reason.BAD_JSON
    if not isinstance(record, dict):
        return Reason.BAD_JSON
    text = record.get("text")
    if not isinstance(text, str):
        return Reason.BAD_JSON
    if not text.strip():
        return Reason.EMPTY
    # JSON can spell half a surrogate pair, which is no character and has no UTF-8.
    return Reason.BAD_UTF8 if any("\ud800" <= letter <= "\udfff" for letter in text) else text


def _prose(name: str, pieces: Iterator[tuple[int, bytes]]) -> Iterator[Document | Rejected]:
    held: list[str] = []
    held_bytes = 0
    for number, piece in pieces:
        try:
            held.append(piece.decode())
        except UnicodeDecodeError:
            yield Rejected(file=name, line=number, reason=Reason.BAD_UTF8)
            continue
        held_bytes += len(piece)
        if held_bytes >= PROSE_BYTES or not piece.endswith(b"\n"):
            yield from _joined(held)
            held, held_bytes = [], 0
    yield from _joined(held)


def _joined(lines: list[str]) -> Iterator[Document]:
    text = "".join(lines)
    if text.strip():
        yield Document(text, 0)
