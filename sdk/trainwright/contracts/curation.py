"""Curation of a dataset version: how its files become documents, and which documents are kept. Data, never code.

A version consists of its files and its curation, and neither changes: a different curation makes a new version. Users
can see what a curation would keep before they apply it (`api.CurationCounts`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from trainwright.contracts.base import IN_PERCENT, Strict, field_error


class FileFormat(StrEnum):
    """Format of a file, determined by its bytes and not its name."""

    TEXT = "text"
    JSON_LINES = "jsonl"
    PARQUET = "parquet"
    CSV = "csv"


class Compression(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    ZSTANDARD = "zstandard"


class TextDocuments(StrEnum):
    FILE = "file"
    BLANK_LINE = "blank_line"


class ReadSpec(Strict):
    """How files are read into documents."""

    text_documents: TextDocuments = TextDocuments.FILE
    """A text file is one document (`file`), or one document per block between blank lines (`blank_line`)."""

    field: str | None = Field(default=None, min_length=1, max_length=200)
    """Key or column with the document, as text or chat messages. Empty: `text`, otherwise `messages`."""


class FilterRules(Strict):
    """Rules for keeping documents, by statistics of their text. An empty rule keeps all documents."""

    min_characters: int | None = Field(default=None, ge=1, le=1_000_000_000)
    """Documents with fewer characters are dropped."""

    max_characters: int | None = Field(default=None, ge=1, le=1_000_000_000)
    """Documents with more characters are dropped."""

    min_letter_fraction: Annotated[float | None, IN_PERCENT] = Field(default=None, ge=0.0, le=1.0)
    """Documents with a smaller fraction of letters, among characters other than white space, are dropped."""

    max_repeated_line_fraction: Annotated[float | None, IN_PERCENT] = Field(default=None, ge=0.0, le=1.0)
    """Documents with a larger fraction of lines that repeat an earlier line are dropped (Gopher, appendix A: 0.3)."""

    min_mean_word_characters: float | None = Field(default=None, ge=0.0, le=1_000.0)
    """Documents with a smaller mean word length, in characters, are dropped (Gopher: 3)."""

    max_mean_word_characters: float | None = Field(default=None, ge=0.0, le=1_000_000.0)
    """Documents with a larger mean word length, in characters, are dropped (Gopher: 10)."""

    @model_validator(mode="after")
    def _ranges_are_not_empty(self) -> Self:
        for low, high in (
            ("min_characters", "max_characters"),
            ("min_mean_word_characters", "max_mean_word_characters"),
        ):
            least, most = getattr(self, low), getattr(self, high)
            if least is not None and most is not None and least > most:
                raise field_error(low, least, f"is larger than {high}, {most:,}: no document would be kept")
        return self


class MixSource(Strict):
    """A dataset version in a mixture."""

    dataset: str = Field(min_length=1, max_length=80)
    """The dataset: its id, `ds_…`, or its name if no other dataset of the team has it. The version stores the id."""

    version: int | None = Field(default=None, ge=1)
    """Its version. Empty: the newest ready one."""

    weight: float = Field(gt=0.0, le=1_000_000.0)
    """Its share of the mixture's characters, relative to the other weights."""


class CurationSpec(Strict):
    """How the files of a version become its documents."""

    read: ReadSpec = ReadSpec()
    """How the files are read."""

    rejected_limit: Annotated[float, IN_PERCENT] = Field(default=0.01, ge=0.0, le=1.0)
    """Fraction of documents that may be unreadable. A version with more of them fails."""

    drop_duplicates: bool = False
    """Keep only the first of several documents with exactly the same text."""

    rules: FilterRules = FilterRules()
    """Rules for keeping documents."""

    mix: list[MixSource] = Field(default=[], max_length=20)
    """Datasets to mix, instead of files. No document is repeated, so the source with the least text for its weight limits the size."""

    @model_validator(mode="after")
    def _sources_differ(self) -> Self:
        named = [(source.dataset, source.version) for source in self.mix]
        twice = next((item for item in named if named.count(item) > 1), None)
        if twice is not None:
            raise field_error("mix", twice[0], "is listed twice: add up its weights")
        return self


class CurationRequest(Strict):
    """A request with a field `curation`, which clients up to version 0.1 send as `recipe`."""

    @model_validator(mode="before")
    @classmethod
    def _accept_recipe(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and "recipe" in given and "curation" not in given:
            return {"curation" if key == "recipe" else key: value for key, value in given.items()}
        return given
