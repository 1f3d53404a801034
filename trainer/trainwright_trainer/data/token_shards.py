"""Token shards, mapped into memory and read as one long stream.

Sequence k is tokens k·T … k·T + T: T inputs and, shifted by one, their T targets. It may cross shards and
documents. Nothing is loaded before it is read, so a dataset of any size costs no memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trainwright.contracts.token_shards import MANIFEST_NAME, Shard, ShardManifest, ShardSplit, TokenType

Tokens = NDArray[np.int64]


class TokenStream:
    """The shards of one split."""

    def __init__(self, folder: Path, split: ShardSplit, token_type: TokenType, sequence_tokens: int) -> None:
        self._shards = [_mapped(folder, shard, token_type) for shard in split.shards]
        self._ends = list(accumulate(shard.tokens for shard in split.shards))
        self.sequence_tokens = sequence_tokens
        self.sequences = max(0, (split.tokens - 1) // sequence_tokens)

    def read(self, sequences: Sequence[int]) -> Tokens:
        """Tokens of the given sequences, each with one more than its length: shape (len(sequences), T + 1)."""
        rows = np.empty((len(sequences), self.sequence_tokens + 1), dtype=np.int64)
        for row, sequence in zip(rows, sequences, strict=True):
            self._fill(row, sequence * self.sequence_tokens)
        return rows

    def _fill(self, row: Tokens, start: int) -> None:
        """Copy the tokens from position ``start`` of the stream on; the copy also widens them."""
        shard = bisect_right(self._ends, start)
        start -= self._ends[shard - 1] if shard else 0
        filled = 0
        while filled < len(row):
            tokens = self._shards[shard][start : start + len(row) - filled]
            row[filled : filled + len(tokens)] = tokens
            shard, start, filled = shard + 1, 0, filled + len(tokens)


def read_manifest(folder: Path) -> ShardManifest:
    """The description of the preparation in ``folder``."""
    return ShardManifest.model_validate_json((folder / MANIFEST_NAME).read_bytes())


def _mapped(folder: Path, shard: Shard, token_type: TokenType) -> NDArray[np.unsignedinteger]:
    path = folder / shard.name
    if path.name != shard.name or not path.is_file() or path.stat().st_size != shard.bytes:
        raise ValueError(
            f"shard {shard.name} is missing or does not have the {shard.bytes} bytes in its manifest"
        )
    mapped = np.memmap(path, dtype=f"<u{token_type.bytes_per_token}", mode="r", shape=(shard.tokens,))
    return np.asarray(mapped)  # slicing a memmap runs Python code, slicing an array does not
