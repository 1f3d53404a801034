"""Exact duplicates among any number of documents, in bounded memory.

Hashes are distributed by their bits to buckets on disk, 24 bytes per document; equal hashes are in the same bucket, and a bucket
fits into memory. The result is one bit per document. Documents are compared by 16 bytes of SHA-256, for which collisions are
not a practical concern.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

BUCKET_DOCUMENTS = 2**20
"""About how many hashes are sorted at once: 100 MB of memory."""
MAX_BUCKETS = 512
ENTRY = np.dtype([("low", "<u8"), ("high", "<u8"), ("index", "<i8")])


class Duplicates:
    """Marks each document whose hash was added before."""

    def __init__(self, documents: int, folder: Path | None = None) -> None:
        """Expect at most ``documents`` documents. The buckets are in ``folder``, by default the folder of temporary files."""
        self._parent = folder
        self._bits = np.zeros(documents // 8 + 1, np.uint8)
        self._count = 0
        wanted = -(-documents // BUCKET_DOCUMENTS)
        self._buckets = min(max(wanted, 1), MAX_BUCKETS)

    def __enter__(self) -> Self:
        self._open = ExitStack()
        made = tempfile.TemporaryDirectory(prefix="duplicates-", dir=self._parent)
        folder = Path(self._open.enter_context(made))
        self._files: list[BinaryIO] = [
            self._open.enter_context((folder / str(bucket)).open("w+b")) for bucket in range(self._buckets)
        ]
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def add(self, hashes: NDArray[np.uint8], takes_part: NDArray[np.bool_]) -> None:
        """Add the next documents, shape (n, 16). Documents that do not take part are never duplicates, and never make
        other documents duplicates."""
        halves = np.ascontiguousarray(hashes).view("<u8")
        entries = np.empty(len(halves), ENTRY)
        entries["low"], entries["high"] = halves[:, 0], halves[:, 1]
        entries["index"] = np.arange(self._count, self._count + len(halves))
        self._count += len(halves)
        entries = entries[takes_part]
        # The lower bits of the last byte, as other parts of the hash determine split, sample and mixture.
        bucket = (entries["high"] % np.uint64(self._buckets)).astype(np.int64)
        for number in np.unique(bucket):
            self._files[number].write(entries[bucket == number].tobytes())

    def find(self) -> None:
        """Find the duplicates, once all documents have been added."""
        for file in self._files:
            file.seek(0)
            entries = np.frombuffer(file.read(), ENTRY)
            # Stable, so that the first of several equal hashes comes first.
            order = np.lexsort((entries["low"], entries["high"]))
            entries = entries[order]
            again = (entries["low"][1:] == entries["low"][:-1]) & (
                entries["high"][1:] == entries["high"][:-1]
            )
            found = entries["index"][1:][again]
            np.bitwise_or.at(self._bits, found >> 3, (1 << (found & 7)).astype(np.uint8))

    def between(self, first: int, end: int) -> NDArray[np.bool_]:
        """Whether each document from index ``first`` up to ``end``, exclusive, is a duplicate."""
        bits = np.unpackbits(self._bits[first >> 3 : (end >> 3) + 1], bitorder="little")
        return bits[first & 7 :][: end - first].astype(np.bool_)
