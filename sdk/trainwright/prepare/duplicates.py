"""Exact duplicates among any number of documents, in bounded memory.

Hashes are dealt out by their first bits to buckets on disk, 24 bytes a document; equal ones share a bucket, and a
bucket fits into memory. Which documents are duplicates is kept as one bit each. Documents are told apart by 16 bytes of
SHA-256: two different ones that agree in them are not to be expected in this world.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

BUCKET_DOCUMENTS = 2**20
"""About as many hashes are sorted at once: 100 MB of memory."""
MOST_BUCKETS = 512
ENTRY = np.dtype([("low", "<u8"), ("high", "<u8"), ("index", "<i8")])


class Duplicates:
    """Marks each document whose hash stood before, in the order in which hashes are added."""

    def __init__(self, documents: int, folder: Path | None = None) -> None:
        """At most ``documents`` will be added; the buckets lie in ``folder``, or where temporary files do."""
        self._parent = folder
        self._bits = np.zeros(documents // 8 + 1, np.uint8)
        self._count = 0
        wanted = -(-documents // BUCKET_DOCUMENTS)
        self._buckets = min(max(wanted, 1), MOST_BUCKETS)

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
        """The next documents, shape (n, 16); those that do not take part are counted and neither make nor are one."""
        halves = np.ascontiguousarray(hashes).view("<u8")
        entries = np.empty(len(halves), ENTRY)
        entries["low"], entries["high"] = halves[:, 0], halves[:, 1]
        entries["index"] = np.arange(self._count, self._count + len(halves))
        self._count += len(halves)
        entries = entries[takes_part]
        # The lower bits of the last byte: other parts of the hash decide on split, sample and mixture.
        bucket = (entries["high"] % np.uint64(self._buckets)).astype(np.int64)
        for number in np.unique(bucket):
            self._files[number].write(entries[bucket == number].tobytes())

    def find(self) -> None:
        """Look for the duplicates, once all documents were added."""
        for file in self._files:
            file.seek(0)
            entries = np.frombuffer(file.read(), ENTRY)
            # Stable, so that of equal hashes the first one comes first.
            order = np.lexsort((entries["low"], entries["high"]))
            entries = entries[order]
            again = (entries["low"][1:] == entries["low"][:-1]) & (
                entries["high"][1:] == entries["high"][:-1]
            )
            found = entries["index"][1:][again]
            np.bitwise_or.at(self._bits, found >> 3, (1 << (found & 7)).astype(np.uint8))

    def between(self, first: int, end: int) -> NDArray[np.bool_]:
        """Whether each of the documents from number ``first`` to before ``end`` is a duplicate."""
        bits = np.unpackbits(self._bits[first >> 3 : (end >> 3) + 1], bitorder="little")
        return bits[first & 7 :][: end - first].astype(np.bool_)
