"""Datasets with their versions, statistics and preparations; tokenizers."""

from __future__ import annotations

from enum import StrEnum

from pydantic import AwareDatetime, Field

from trainwright.contracts.base import Envelope, Strict
from trainwright.contracts.curation import Compression, CurationRequest, CurationSpec, FileFormat
from trainwright.contracts.data_spec import TokenizerSpec
from trainwright.contracts.run_spec import Name


class PreparationState(StrEnum):
    WAITING = "waiting"
    WORKING = "working"
    READY = "ready"
    FAILED = "failed"
    CANCELLED = "cancelled"


class HistogramBin(Envelope):
    """Documents with up to ``upto`` characters or tokens, and more than the previous bin."""

    upto: int
    documents: int


class Preparation(Envelope):
    """The tokens of a dataset version for one tokenizer and split."""

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
    """Whether the validation split is the last 1 % of the tokens because no document fell into it."""

    lengths: list[HistogramBin] = []
    """Documents by length in tokens."""

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
    """Known once the file has been inspected."""

    compression: Compression = Compression.NONE
    documents: int | None = None
    rejected: int | None = None


class VersionState(StrEnum):
    WAITING = "waiting"
    READING = "reading"
    READY = "ready"
    FAILED = "failed"


class MixShare(Envelope):
    """What one source contributes to a mixture."""

    dataset: str
    version: int
    documents: int
    characters: int
    share: float
    """Fraction of the mixture's characters, 0..1."""


class Statistics(Envelope):
    """What a curation keeps of a version's documents."""

    documents: int
    """Documents in the files or the mixed versions."""

    kept: int
    characters: int
    """Characters of the kept documents."""

    rejected: int
    duplicates: int
    """Documents with exactly the text of an earlier one; dropped only if the curation says so."""

    dropped: dict[str, int] = {}
    """Documents that each part of the curation leaves out, by name. Only the first part that applies counts."""

    lengths: list[HistogramBin] = []
    """Kept documents by length in characters."""

    mix: list[MixShare] = []


class CurationCounts(Statistics):
    """What a curation would keep, before it is applied."""

    counted_fraction: float = 1.0
    """Fraction of the documents that was counted. Below 1, all figures are extrapolated from it, except documents, rejected
    and duplicates, which are exact."""


class CountRequest(CurationRequest):
    dataset: str | None = Field(default=None, min_length=1, max_length=80)
    """The dataset whose files the curation applies to, by id or unique name; empty for a mixture."""

    version: int | None = Field(default=None, ge=1)
    curation: CurationSpec


class DatasetVersion(Envelope):
    number: int
    created: AwareDatetime
    bytes: int
    files: list[DatasetFile]
    curation: CurationSpec = CurationSpec()
    state: VersionState = VersionState.READY
    error: str | None = None
    """Why it failed, and what to do about it."""

    read_bytes: int = 0
    """Bytes of the files that have been read, as progress."""

    statistics: Statistics | None = None
    """Once it is ready."""

    changes: list[str] = []
    """Differences from the previous version, one sentence each."""

    preparations: list[Preparation]


class SameFiles(Envelope):
    """The newest version of another dataset, if it has exactly the same files, whatever their names."""

    dataset: str
    """Its id."""

    name: str
    version: int


class Dataset(Envelope):
    id: str
    name: str
    created: AwareDatetime
    created_by: str | None
    versions: list[DatasetVersion]
    """Newest first. In lists of datasets, only the newest."""

    same_files_as: list[SameFiles] = []
    """The team's other datasets whose newest version has the files of this one's newest version. Always empty in lists of
    datasets."""


class NewDataset(CurationRequest):
    name: Name
    uploads: list[str] = Field(default=[], max_length=1_000)
    """Ids of complete uploads, in the order of their files. Empty for a mixture."""

    curation: CurationSpec = CurationSpec()


class NewVersion(CurationRequest):
    uploads: list[str] | None = Field(default=None, max_length=1_000)
    """The version's files. Empty: those of version `base`, so that only the curation changes."""

    base: int | None = Field(default=None, ge=1)
    """The version whose files are kept. Empty: the newest one."""

    keep_files: bool = False
    """Whether the uploads are added to the files of `base` instead of replacing them."""

    curation: CurationSpec | None = None
    """Empty: the curation of version `base`."""


class DocumentSample(Envelope):
    """A document of a version."""

    number: int
    """Position in the version, from 0."""

    file: str
    line: int
    """Line or row where it starts, from 1."""

    characters: int
    text: str
    """Its first 2,000 characters."""

    kept: bool
    dropped_by: str | None = None
    """The part of the curation that leaves it out."""


class Tokenizer(Envelope):
    """An uploaded `tokenizer.json`."""

    id: str
    name: str
    vocabulary: int
    """Number of token ids, including added tokens."""

    end_of_text: str
    digest: str
    created: AwareDatetime
    created_by: str | None


class NewTokenizer(Strict):
    name: Name
    upload: str
    """Id of a complete upload of a `tokenizer.json`."""
