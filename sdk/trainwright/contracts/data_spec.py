"""Which data a run learns from, and how its text becomes tokens."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from trainwright.contracts.base import Strict, refused

BYTES_VOCABULARY = 257
"""256 byte values and the end-of-text token."""


class TokenizerKind(StrEnum):
    BPE = "bpe"
    BYTES = "bytes"
    UPLOADED = "uploaded"
    DATASET = "dataset"


class TokenizerSpec(Strict):
    """How text becomes tokens."""

    kind: TokenizerKind = TokenizerKind.BPE
    """`bpe` trains one on the data; `bytes` uses byte values; `uploaded` and `dataset` take the one of `source`."""

    source: str | None = Field(default=None, min_length=1, max_length=80)
    """Id of the uploaded tokenizer, `tok_…`, or of the dataset whose BPE is taken, `ds_…`."""

    vocabulary: int | None = Field(default=None, ge=BYTES_VOCABULARY, le=1_048_576)
    """Number of token ids. Left empty: 4,096 for `bpe`, 257 for `bytes`, else what the tokenizer of `source` has."""

    @property
    def size(self) -> int:
        """The vocabulary in force, in tokens. That of `uploaded` and `dataset` is filled in at submission."""
        if self.vocabulary is not None:
            return self.vocabulary
        return BYTES_VOCABULARY if self.kind is TokenizerKind.BYTES else 4_096

    @property
    def has_source(self) -> bool:
        """The tokenizer is not made from the data."""
        return self.kind in (TokenizerKind.UPLOADED, TokenizerKind.DATASET)

    @model_validator(mode="after")
    def _source_fits(self) -> Self:
        if self.has_source and self.source is None:
            rule = (
                f"is empty: kind {self.kind.value} needs the id of the tokenizer or dataset to take it from"
            )
            raise refused("source", "source", rule)
        if not self.has_source and self.source is not None:
            rule = f"is given, but kind {self.kind.value} takes no source: leave it empty, or choose another kind"
            raise refused("source", self.source, rule)
        return self


class DataSpec(Strict):
    """Which data, and how it is prepared."""

    dataset: str = Field(min_length=1, max_length=80)
    """Id of the dataset, `ds_…`."""

    version: int | None = Field(default=None, ge=1)
    """Version of the dataset; the newest at submission when left empty."""

    tokenizer: TokenizerSpec = TokenizerSpec()
    """The tokenizer made for this data."""

    validation_fraction: float = Field(default=0.01, ge=0.0, le=0.5)
    """Share of the documents kept for validation, chosen by a hash of each document."""
