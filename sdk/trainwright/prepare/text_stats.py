"""Statistics of a document's text, computed once when it is read, so that rules can be applied without the text.

- ``characters``: Unicode code points.
- ``letter_fraction``: letters among the characters that are not white space. Letters are the Unicode categories L
  (letters), M (marks, which Indic and other scripts write vowels with) and Nl (letter numbers); white space is what
  ``str.isspace`` says. 0 if there is nothing but white space.
- ``repeated_line_fraction``: lines that equal an earlier line of the document, among its lines that are not blank. Lines end
  at line feeds. 0 if there are none. In documents with very many lines they are compared by SHA-256.
- ``mean_word_characters``: characters that are not white space, divided by words, which are separated by white
  space. 0 if there are none.

Counts are exact, divided once and rounded to float32. Categories are those of Python's Unicode version.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from trainwright.prepare.documents import HASH_BYTES, hash_of

LETTER, SPACE = 1, 2
BATCH_CHARACTERS = 2**18
MANY_LINES = 100_000


@dataclass(frozen=True)
class TextStats:
    """One entry for each document."""

    hash: NDArray[np.uint8]
    """Shape (n, 16)."""

    characters: NDArray[np.int32]
    letter_fraction: NDArray[np.float32]
    repeated_line_fraction: NDArray[np.float32]
    mean_word_characters: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.characters)


def compute_text_stats(texts: Sequence[str], contents: Sequence[bytes]) -> TextStats:
    """Statistics of ``texts``, whose UTF-8 is ``contents``, in order."""
    counts = [_counts(batch) if len(batch) > 1 else _counts_of_one(batch[0]) for batch in _batches(texts)]
    letters, visible, words = np.concatenate([*counts, np.zeros((3, 0), np.int64)], axis=1)
    hashes = b"".join(map(hash_of, contents))
    return TextStats(
        hash=np.frombuffer(hashes, np.uint8).reshape(-1, HASH_BYTES),
        characters=np.array([len(text) for text in texts], np.int32),
        letter_fraction=_fraction(letters, visible),
        repeated_line_fraction=np.array([_repeated(text) for text in texts], np.float32),
        mean_word_characters=_fraction(visible, words),
    )


def _fraction(some: NDArray[np.int64], all_: NDArray[np.int64]) -> NDArray[np.float32]:
    return (some / np.maximum(all_, 1)).astype(np.float32)


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """Batches of texts with about `BATCH_CHARACTERS` in total, or a single longer text."""
    batch: list[str] = []
    characters = 0
    for text in texts:
        if batch and characters + len(text) > BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
        batch.append(text)
        characters += len(text)
    if batch:
        yield batch


def _counts(texts: Sequence[str]) -> NDArray[np.int64]:
    """Letters, characters that are not white space, and words of each text; shape (3, n)."""
    kinds = _kinds("\n".join(texts) + "\n")
    ends = np.cumsum([len(text) + 1 for text in texts])
    spaces = kinds == SPACE
    # A word starts at each character that is not white space and follows white space.
    begins = ~spaces
    begins[1:] &= spaces[:-1]
    masks = (kinds == LETTER, ~spaces, begins)
    bounds = list(zip([0, *ends[:-1]], ends, strict=True))
    return np.array(
        [[np.count_nonzero(mask[start:end]) for start, end in bounds] for mask in masks], np.int64
    )


def _counts_of_one(text: str) -> NDArray[np.int64]:
    """The same for a single, possibly long text, in parts."""
    total = np.zeros((3, 1), np.int64)
    for start in range(0, len(text), BATCH_CHARACTERS):
        total += _counts([text[start : start + BATCH_CHARACTERS]])
        if start and not text[start - 1].isspace() and not text[start].isspace():
            total[2] -= 1  # a word continues from the previous part
    return total


def _kinds(text: str) -> NDArray[np.uint8]:
    """LETTER, SPACE or 0 for each character."""
    table = _kinds_of_characters()
    if text.isascii():
        return np.frombuffer(text.encode().translate(table[:256].tobytes()), np.uint8)
    return np.take(table, np.frombuffer(text.encode("utf-32-le"), "<u4"))


@cache
def _kinds_of_characters() -> NDArray[np.uint8]:
    """LETTER, SPACE or 0 for each code point."""
    kinds = np.zeros(sys.maxunicode + 1, np.uint8)
    for code in range(sys.maxunicode + 1):
        category = unicodedata.category(chr(code))
        if category[0] in "LM" or category == "Nl":
            kinds[code] = LETTER
        elif chr(code).isspace():
            kinds[code] = SPACE
    return kinds


def _repeated(text: str) -> float:
    breaks = text.count("\n")
    if not breaks:
        return 0.0
    if breaks > MANY_LINES:
        return _repeated_of_many(text)
    lines = [line for line in text.split("\n") if line and not line.isspace()]
    return 1 - len(set(lines)) / len(lines) if lines else 0.0


def _repeated_of_many(text: str) -> float:
    """The same with less memory: a text of 8 MiB can have millions of lines."""
    digests = bytearray()
    start = 0
    while start <= len(text):
        end = text.find("\n", start)
        line = text[start : end if end >= 0 else len(text)]
        if line and not line.isspace():
            digests += hash_of(line.encode())
        start = end + 1 if end >= 0 else len(text) + 1
    halves = np.frombuffer(digests, np.uint64).reshape(-1, 2)
    if not len(halves):
        return 0.0
    ordered = halves[np.lexsort((halves[:, 0], halves[:, 1]))]
    return float(np.count_nonzero((ordered[1:] == ordered[:-1]).all(axis=1)) / len(ordered))
