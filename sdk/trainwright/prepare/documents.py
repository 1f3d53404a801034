"""Documents: the texts of a dataset, and the numbers in 0..1 by which they are selected.

A document is one text of at most 8 MiB of UTF-8. Text that cannot become a document is rejected with its line and the
reason, and never dropped silently. The split, sample or mixture of a document depends only on a hash of its text. So
equal texts are treated in the same way, and neither the order nor the number of files matters.

This module opens no files: `file_reader` reads documents from files, `chunks` stores them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trainwright.contracts.base import Envelope

DOCUMENT_BYTES = 8 * 2**20
"""Most UTF-8 bytes of one document."""
HASH_BYTES = 16


class UnusableDataError(ValueError):
    """The files themselves are at fault: a retry would fail the same way."""


@dataclass(frozen=True)
class Source:
    """One file of a dataset version: its name and the path of its bytes."""

    name: str
    path: Path
    folder: Path | None = None
    """Folder to unpack it in, if necessary; None: the folder of temporary files."""


@dataclass(frozen=True, slots=True)
class Document:
    """One text, and the line or row where it starts, from 1."""

    text: str
    line: int


class Reason(StrEnum):
    """Why a line or row is not a document, for reasons that do not name a field."""

    BAD_JSON = "is not a JSON object"
    BAD_ROW = "cannot be read as a row of a table"
    WRONG_CELLS = "has a different number of cells than the header"
    EMPTY = "is empty"
    BAD_UTF8 = "is not valid UTF-8: save the file as UTF-8 (from Latin-1: `iconv -f latin1 -t utf-8`)"
    TOO_LONG = "is longer than 8 MiB"
    BAD_MESSAGE = "contains a message without role or content"


class Rejected(Envelope):
    """A line or row without a document."""

    file: str
    """Name of the source."""

    line: int
    """Line or row where it starts, from 1."""

    reason: str
    """Continues the sentence "line 7 …"."""


def hash_of(content: bytes) -> bytes:
    """Hash that identifies a document: the first 16 bytes of the SHA-256 of its UTF-8."""
    return hashlib.sha256(content).digest()[:HASH_BYTES]


def is_validation(text: str, fraction: float) -> bool:
    """Whether a document is held out for validation: true for ``fraction`` of all texts, always the same ones."""
    return _number(text, 0) < fraction


def sample_rank(text: str) -> float:
    """A number in 0..1 that selects documents for a sample, independent of the split."""
    return _number(text, 8)


def mix_ranks(hashes: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Numbers in 0..1, excluding 1, that select documents for a mixture, independent of split and sample.

    Args:
        hashes: shape (n, 16), as `hash_of` gives them.
    """
    halves = np.ascontiguousarray(hashes).view(">u8").astype(np.uint64)
    mixed = halves[:, 0] + halves[:, 1] * np.uint64(0x9E3779B97F4A7C15)
    # The finalizer of splitmix64: each bit of the result depends on every bit of both halves.
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed = (mixed ^ (mixed >> np.uint64(31))) >> np.uint64(11)
    ranks: NDArray[np.float64] = mixed / np.float64(2**53)
    return ranks


def _number(text: str, offset: int) -> float:
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[offset : offset + 8], "big") / 2**64
