"""Token shards, mapped into memory and read as one long stream.

Sequence k is tokens k·T … k·T + T: T inputs and, one further, their T targets. It may cross shards and documents.
Nothing is loaded before it is read, so the size of a dataset costs no memory.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trainwright.contracts.shards import MANIFEST_NAME, Shard, ShardManifest, ShardSplit, TokenType

Tokens = NDArray[np.int64]


class TokenStream:
    """The shards of one split."""

    def __init__(self, folder: Path, split: ShardSplit, token_type: TokenType, sequence_tokens: int) -> None:
        self._shards = [_mapped(folder, shard, token_type) for shard in split.shards]
        self._ends = np.cumsum([shard.tokens for shard in split.shards], dtype=np.int64)
        self._length = sequence_tokens
        self.sequences = max(0, (split.tokens - 1) // sequence_tokens)

    def sequence(self, index: int) -> Tokens:
        """Tokens of sequence ``index``, one more than its length: shape (T + 1,)."""
        start, left = index * self._length, self._length + 1
        pieces: list[Tokens] = []
        shard = int(np.searchsorted(self._ends, start, side="right"))
        start -= int(self._ends[shard - 1]) if shard else 0
        while left:
            piece = self._shards[shard][start : start + left]
            pieces.append(piece.astype(np.int64))
            shard, start, left = shard + 1, 0, left - len(piece)
        return np.concatenate(pieces)


def read_manifest(folder: Path) -> ShardManifest:
    """The description of the preparation in ``folder``."""
    return ShardManifest.model_validate_json((folder / MANIFEST_NAME).read_bytes())


def _mapped(folder: Path, shard: Shard, token_type: TokenType) -> NDArray[np.unsignedinteger]:
    path = folder / shard.name
    if path.name != shard.name or not path.is_file() or path.stat().st_size != shard.bytes:
        raise ValueError(f"shard {shard.name} is missing or has not the {shard.bytes} bytes of its manifest")
    return np.memmap(path, dtype=f"<u{token_type.bytes_per_token}", mode="r", shape=(shard.tokens,))
