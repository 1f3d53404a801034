"""Token shards as one long stream: mapped into memory, or read from disk.

Sequence k is tokens k·T … k·T + T: T inputs and, shifted by one, their T targets. It may cross shards and
documents. Nothing is loaded before it is read, so a dataset of any size costs no memory.

A single rank maps the shards (``TokenStream``). The reader of a node with several ranks reads them (``TokenFiles``): a
process that maps a file is killed if the disk fails, and the kernel reads far more around each page than a sequence needs.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trainwright.contracts.token_shards import MANIFEST_NAME, Shard, ShardManifest, ShardSplit, TokenType

Tokens = NDArray[np.int64]


class _Split:
    """A split's sequences, and where its shards end."""

    def __init__(self, split: ShardSplit, sequence_tokens: int) -> None:
        self._ends = list(accumulate(shard.tokens for shard in split.shards))
        self.sequence_tokens = sequence_tokens
        self.sequences = max(0, (split.tokens - 1) // sequence_tokens)


class TokenStream(_Split):
    """The shards of one split, mapped into memory."""

    def __init__(self, folder: Path, split: ShardSplit, token_type: TokenType, sequence_tokens: int) -> None:
        super().__init__(split, sequence_tokens)
        self._shards = [_mapped(folder, shard, token_type) for shard in split.shards]
        self.token_type = token_type

    def read(self, sequences: Sequence[int]) -> Tokens:
        """Tokens of the given sequences, each with one more than its length: shape (len(sequences), T + 1)."""
        rows = np.empty((len(sequences), self.sequence_tokens + 1), dtype=np.int64)
        for row, sequence in zip(rows, sequences, strict=True):
            self._fill(row, sequence * self.sequence_tokens)
        return rows

    def _fill(self, row: Tokens, start: int) -> None:
        """Copy the tokens from position ``start`` of the stream on; the copy also widens them."""
        # Finding the shard in a function of its own would take a third of the time that the copy takes.
        shard = bisect_right(self._ends, start)
        start -= self._ends[shard - 1] if shard else 0
        filled = 0
        while filled < len(row):
            tokens = self._shards[shard][start : start + len(row) - filled]
            row[filled : filled + len(tokens)] = tokens
            shard, start, filled = shard + 1, 0, filled + len(tokens)


class TokenFiles(_Split):
    """The shards of one split, read from disk as they are stored."""

    def __init__(self, folder: Path, split: ShardSplit, token_type: TokenType, sequence_tokens: int) -> None:
        super().__init__(split, sequence_tokens)
        self._shards = split.shards
        self._files = [_opened(folder, shard) for shard in split.shards]
        self.bytes_per_token = token_type.bytes_per_token

    def read_into(self, row: memoryview, sequence: int) -> None:
        """Fill ``row`` with the bytes of a sequence and the token after it.

        Raises:
            OSError: a shard cannot be read, or has become shorter.
        """
        first = sequence * self.sequence_tokens
        shard = bisect_right(self._ends, first)
        first -= self._ends[shard - 1] if shard else 0
        while row:
            described, offset = self._shards[shard], first * self.bytes_per_token
            size = min(len(row), described.bytes - offset)
            _read_exactly(self._files[shard], row[:size], offset, described.name)
            shard, first, row = shard + 1, 0, row[size:]


def read_manifest(folder: Path) -> ShardManifest:
    """The description of the preparation in ``folder``."""
    return ShardManifest.model_validate_json((folder / MANIFEST_NAME).read_bytes())


def _mapped(folder: Path, shard: Shard, token_type: TokenType) -> NDArray[np.unsignedinteger]:
    path = _checked(folder, shard)
    mapped = np.memmap(path, dtype=f"<u{token_type.bytes_per_token}", mode="r", shape=(shard.tokens,))
    return np.asarray(mapped)  # slicing a memmap runs Python code, slicing an array does not


def _opened(folder: Path, shard: Shard) -> int:
    descriptor = os.open(_checked(folder, shard), os.O_RDONLY | os.O_CLOEXEC)
    # Sequences are read in random order: what the kernel would read ahead is not used.
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    return descriptor


def _checked(folder: Path, shard: Shard) -> Path:
    path = folder / shard.name
    if path.name != shard.name or not path.is_file() or path.stat().st_size != shard.bytes:
        raise ValueError(
            f"shard {shard.name} is missing or does not have the {shard.bytes} bytes in its manifest"
        )
    return path


def _read_exactly(descriptor: int, into: memoryview, offset: int, name: str) -> None:
    while into:
        try:
            count = os.preadv(descriptor, [into], offset)
        except OSError as error:
            raise OSError(error.errno, f"shard {name} cannot be read: {error.strerror}") from error
        if not count:
            raise OSError(f"shard {name} has become shorter: it ends at byte {offset:,}")
        into, offset = into[count:], offset + count
