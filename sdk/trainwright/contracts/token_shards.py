"""Token shards: the files of a preparation of a dataset version.

A shard is a flat little-endian file of token ids, uint16 if the vocabulary has at most 65,536 ids and uint32 otherwise,
with an end-of-text token after each document. The manifest lists shards with digests and counts. Manifest and shards are
pure functions of the documents, the tokenizer and the split, so a preparation can be killed and repeated.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from trainwright.contracts.base import Envelope
from trainwright.contracts.data_spec import TokenizerSpec

MANIFEST_NAME = "manifest.json"
TOKENIZER_NAME = "tokenizer.json"


class TokenType(StrEnum):
    UINT16 = "uint16"
    UINT32 = "uint32"

    @classmethod
    def for_vocabulary(cls, size: int) -> TokenType:
        return cls.UINT16 if size <= 65_536 else cls.UINT32

    @property
    def bytes_per_token(self) -> int:
        return 2 if self is TokenType.UINT16 else 4


class Shard(Envelope):
    """One file of token ids."""

    name: str
    """File name within the preparation, such as `train-00003.bin`."""

    digest: str
    """SHA-256 of the file, in hex."""

    bytes: int
    tokens: int
    documents: int


class ShardSplit(Envelope):
    """The shards of the train or validation split, in order."""

    documents: int = 0
    tokens: int = 0
    shards: list[Shard] = []


class ShardManifest(Envelope):
    """Describes a preparation, in its file ``manifest.json``."""

    schema_version: Literal[1] = 1
    tokenizer: TokenizerSpec
    end_of_text: int
    """Id of the token that ends each document."""

    token_type: TokenType
    tokenizer_digest: str
    """SHA-256 of ``tokenizer.json``, in the format of the `tokenizers` library."""

    validation_fraction: float
    validation_from_tail: bool = False
    """Whether the validation split is the last 1 % of the tokens because no document fell into it."""

    train: ShardSplit = Field(default_factory=ShardSplit)
    validation: ShardSplit = Field(default_factory=ShardSplit)
