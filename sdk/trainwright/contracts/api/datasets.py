"""Datasets with their versions, statistics and preparations; tokenizers."""

from __future__ import annotations

from enum import StrEnum

from pydantic import AwareDatetime, Field

from trainwright.contracts.base import Envelope, Strict
from trainwright.contracts.data_spec import TokenizerSpec
from trainwright.contracts.recipe import Compression, FileFormat, Recipe
from trainwright.contracts.run_spec import Name


class PreparationState(StrEnum):
    WAITING = "waiting"
    WORKING = "working"
    READY = "ready"
    FAILED = "failed"
    CANCELLED = "cancelled"


class HistogramBin(Envelope):
    """Documents of up to ``upto`` characters or tokens, and more than the bin before has."""

    upto: int
    documents: int


class Preparation(Envelope):
    """The tokens of a version for one tokenizer and split."""

    id: str
    state: PreparationState
    tokenizer: TokenizerSpec
    validation_fraction: float
    shards_done: int
    shards_total: int | None
    tokens_done: int = 0
    documents: int | None = None
    rejected: int | None = None
    train_tokens: int | None = None
    validation_tokens: int | None = None
    validation_from_tail: bool = False
    """No document fell into the validation split, so the last 1 % of tokens is it."""

    lengths: list[HistogramBin] = []
    """Documents by their length in tokens."""

    error: str | None = None


class NewPreparation(Strict):
    version: int | None = Field(default=None, ge=1)
    tokenizer: TokenizerSpec = TokenizerSpec()
    validation_fraction: float = Field(default=0.01, ge=0.0, le=0.5)


class DatasetFile(Envelope):
    name: str
    bytes: int
    digest: str
    format: FileFormat | None = None
    """Known once the file was looked at."""

    compression: Compression = Compression.NONE
    documents: int | None = None
    rejected: int | None = None


class VersionState(StrEnum):
    WAITING = "waiting"
    READING = "reading"
    READY = "ready"
    FAILED = "failed"


class MixShare(Envelope):
    """What one source gives to a mixture."""

    dataset: str
    version: int
    documents: int
    characters: int
    share: float
    """Of the mixture's characters, 0..1."""


class Statistics(Envelope):
    """What a recipe makes of a version's documents."""

    documents: int
    """Read from the files or the mixed versions."""

    kept: int
    characters: int
    """Of the documents that are kept."""

    rejected: int
    duplicates: int
    """Documents whose exact text stood before; left out only where the recipe says so."""

    dropped: dict[str, int] = {}
    """Documents that each part of the recipe leaves out, by its name: the first one that applies counts."""

    lengths: list[HistogramBin] = []
    """Kept documents by their length in characters."""

    mix: list[MixShare] = []


class RecipeCounts(Statistics):
    """What a recipe would do, before it is applied."""

    counted_fraction: float = 1.0
    """Share of the documents that was measured; below 1 the figures are scaled up from it, but for documents, rejected and
    duplicates, which are exact."""


class CountRequest(Strict):
    dataset: str | None = Field(default=None, min_length=1, max_length=80)
    """The dataset whose files the recipe is for; empty for a mixture."""

    version: int | None = Field(default=None, ge=1)
    recipe: Recipe


class DatasetVersion(Envelope):
    number: int
    created: AwareDatetime
    bytes: int
    files: list[DatasetFile]
    recipe: Recipe = Recipe()
    state: VersionState = VersionState.READY
    error: str | None = None
    """Why it failed, and what to do."""

    read_bytes: int = 0
    """Of the files' bytes, how many have been read into documents: its progress."""

    statistics: Statistics | None = None
    """When it is ready."""

    changes: list[str] = []
    """What differs from the version before, a sentence each."""

    preparations: list[Preparation]


class Dataset(Envelope):
    id: str
    name: str
    created: AwareDatetime
    created_by: str | None
    versions: list[DatasetVersion]
    """Newest first. In lists, only the newest."""


class NewDataset(Strict):
    name: Name
    uploads: list[str] = Field(default=[], max_length=1_000)
    """Ids of complete uploads, in the order of their files. None for a mixture."""

    recipe: Recipe = Recipe()


class NewVersion(Strict):
    uploads: list[str] | None = Field(default=None, max_length=1_000)
    """The version's files. Left empty: those of version `base`, so that only the recipe changes."""

    base: int | None = Field(default=None, ge=1)
    """The version whose files are kept; the newest when left empty."""

    keep_files: bool = False
    """The uploads are added to the files of `base`; otherwise they replace them."""

    recipe: Recipe | None = None
    """Left empty: the recipe of version `base`."""


class DocumentSample(Envelope):
    """A document as it was read."""

    number: int
    """Position in the version, from 0."""

    file: str
    line: int
    """Line or row at which it begins, from 1."""

    characters: int
    text: str
    """Its first 2,000 characters."""

    kept: bool
    dropped_by: str | None = None
    """The part of the recipe that leaves it out."""


class Tokenizer(Envelope):
    """An uploaded `tokenizer.json`."""

    id: str
    name: str
    vocabulary: int
    """Token ids, added tokens included."""

    end_of_text: str
    digest: str
    created: AwareDatetime
    created_by: str | None


class NewTokenizer(Strict):
    name: Name
    upload: str
    """Id of a complete upload of a `tokenizer.json`."""
