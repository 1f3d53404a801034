"""A version's recipe: how its files become documents, and which of them are kept. Data, never code.

A version is its files and its recipe, and neither changes: another recipe is another version. What a recipe does is
counted before it is applied (`api.RecipeCounts`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from trainwright.contracts.base import IN_PERCENT, Strict, refused


class FileFormat(StrEnum):
    """What a file holds, as its bytes say and not its name."""

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
    """A text file is one document (`file`), or one for each stretch between blank lines (`blank_line`)."""

    field: str | None = Field(default=None, min_length=1, max_length=200)
    """Key or column that holds a document, as text or as chat messages; `text`, else `messages`, when left empty."""


class Rules(Strict):
    """Which documents are kept, by what can be counted in them. A rule that is left empty keeps all."""

    min_characters: int | None = Field(default=None, ge=1, le=1_000_000_000)
    """Shorter documents are left out, in characters."""

    max_characters: int | None = Field(default=None, ge=1, le=1_000_000_000)
    """Longer documents are left out, in characters."""

    min_letter_fraction: Annotated[float | None, IN_PERCENT] = Field(default=None, ge=0.0, le=1.0)
    """Documents with a smaller share of letters among their characters, white space apart, are left out."""

    max_repeated_line_fraction: Annotated[float | None, IN_PERCENT] = Field(default=None, ge=0.0, le=1.0)
    """Documents with a larger share of lines that stood in them before are left out (Gopher, appendix A: 0.3)."""

    min_mean_word_characters: float | None = Field(default=None, ge=0.0, le=1_000.0)
    """Documents whose words are shorter on average are left out, in characters (Gopher: 3)."""

    max_mean_word_characters: float | None = Field(default=None, ge=0.0, le=1_000_000.0)
    """Documents whose words are longer on average are left out, in characters (Gopher: 10)."""

    @model_validator(mode="after")
    def _ranges_are_open(self) -> Self:
        for low, high in (
            ("min_characters", "max_characters"),
            ("min_mean_word_characters", "max_mean_word_characters"),
        ):
            least, most = getattr(self, low), getattr(self, high)
            if least is not None and most is not None and least > most:
                raise refused(low, least, f"is larger than {high} {most:,}: nothing would be kept")
        return self


class MixSource(Strict):
    """A version of a dataset that goes into a mixture."""

    dataset: str = Field(min_length=1, max_length=80)
    """Id of the dataset, `ds_…`, of the same team."""

    version: int | None = Field(default=None, ge=1)
    """Its version; the newest ready one when left empty."""

    weight: float = Field(gt=0.0, le=1_000_000.0)
    """Its share of the mixture's characters, relative to the other weights."""


class Recipe(Strict):
    """How a version's documents come about."""

    read: ReadSpec = ReadSpec()
    """How the files are read."""

    rejected_limit: Annotated[float, IN_PERCENT] = Field(default=0.01, ge=0.0, le=1.0)
    """Share of documents that may be unreadable; a version with more of them fails."""

    drop_duplicates: bool = False
    """Keep only the first of several documents with exactly the same text."""

    rules: Rules = Rules()
    """Which documents are kept."""

    mix: list[MixSource] = Field(default=[], max_length=20)
    """Datasets that are mixed instead of files. No document is repeated: the scarcest sets the size of the mixture."""

    @model_validator(mode="after")
    def _sources_differ(self) -> Self:
        named = [(source.dataset, source.version) for source in self.mix]
        twice = next((one for one in named if named.count(one) > 1), None)
        if twice is not None:
            raise refused("mix", twice[0], "is named twice: add up its weights")
        return self
