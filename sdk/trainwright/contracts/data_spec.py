"""The training data of a run, and how its text becomes tokens."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from trainwright.contracts.base import Strict, field_error

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
    """`bpe` trains a tokenizer on the data; `bytes` uses byte values; `uploaded` and `dataset` use the tokenizer of `source`."""

    source: str | None = Field(default=None, min_length=1, max_length=80)
    """The uploaded tokenizer, or the dataset whose BPE tokenizer is used: its id, or its name if no other has it."""

    vocabulary: int | None = Field(default=None, ge=BYTES_VOCABULARY, le=1_048_576)
    """Number of token ids. Empty: 4,096 for `bpe`, 257 for `bytes`, otherwise that of the tokenizer of `source`."""

    @property
    def size(self) -> int:
        """The effective vocabulary size. That of `uploaded` and `dataset` is filled in at submission."""
        if self.vocabulary is not None:
            return self.vocabulary
        return BYTES_VOCABULARY if self.kind is TokenizerKind.BYTES else 4_096

    @property
    def has_source(self) -> bool:
        """Whether the tokenizer comes from elsewhere instead of being made from the data."""
        return self.kind in (TokenizerKind.UPLOADED, TokenizerKind.DATASET)

    @model_validator(mode="after")
    def _source_fits(self) -> Self:
        if self.has_source and self.source is None:
            rule = f"is empty: kind {self.kind.value} needs the id or name of the tokenizer or dataset to use"
            raise field_error("source", "source", rule)
        if not self.has_source and self.source is not None:
            rule = (
                f"is given, but kind {self.kind.value} has no source: leave it empty, or choose another kind"
            )
            raise field_error("source", self.source, rule)
        return self


class DataSpec(Strict):
    """The dataset, and how it is prepared."""

    dataset: str = Field(min_length=1, max_length=80)
    """The dataset: its id, `ds_…`, or its name if no other dataset of the team has it. A run stores the id."""

    version: int | None = Field(default=None, ge=1)
    """Version of the dataset. Empty: the newest one at submission."""

    tokenizer: TokenizerSpec = TokenizerSpec()
    """The tokenizer."""

    validation_fraction: float = Field(default=0.01, ge=0.0, le=0.5)
    """Fraction of the documents held out for validation, chosen by a hash of each document."""
