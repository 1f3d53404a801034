"""Resolving the `data` section of a submission: the version, the tokenizer and the preparation that it names.

A version or tokenizer in use is locked until the transaction ends. So a concurrent delete either sees its user, or
happens first and leaves nothing to resolve.
"""

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.orm import undefer

from trainwright.contracts.api.datasets import PreparationState, VersionState
from trainwright.contracts.data_spec import DataSpec, TokenizerKind, TokenizerSpec
from trainwright.contracts.token_shards import TOKENIZER_NAME, ShardManifest
from trainwright_backend.core.db import Read, Write
from trainwright_backend.core.errors import Invalid
from trainwright_backend.datasets.job_queue import PENDING_VERSION, JobKind, send_job
from trainwright_backend.datasets.mixtures import describe_versions
from trainwright_backend.datasets.names import NO_DATASET, dataset_id, parsed_id, tokenizer_id
from trainwright_backend.datasets.preparations import (
    find_or_create,
    find_preparation,
    object_key,
    preparation_digest,
)
from trainwright_backend.datasets.tables import Dataset, DatasetVersion, Preparation, UploadedTokenizer

DATASET = "data.dataset"
SOURCE = "data.tokenizer.source"
VOCABULARY = "data.tokenizer.vocabulary"


@dataclass(frozen=True)
class TokenizerFile:
    """A `tokenizer.json` that is not trained on the data."""

    object_key: str
    digest: str
    """SHA-256, in hex."""

    vocabulary: int


def resolve_data(session: Write, team_id: UUID, data: DataSpec) -> tuple[DataSpec, Preparation]:
    """The preparation that a submission needs; it is created and queued if there is none.

    Returns:
        ``data`` with all choices made, and the preparation in its current state.

    Raises:
        Invalid: there is no such dataset, version or tokenizer, or it cannot be used.
    """
    data = lock_data(session, team_id, data)
    version = _version_of(session, team_id, data)
    tokenizer, file = _resolve_tokenizer(session, team_id, data.tokenizer)
    resolved = data.model_copy(update={"version": version.number, "tokenizer": tokenizer})
    digest = None if file is None else file.digest
    preparation = find_or_create(session, team_id, version, tokenizer, data.validation_fraction, digest)
    if version.state in PENDING_VERSION:
        send_job(
            session, JobKind.CURATE, version.id
        )  # a version of an older release may never have been parsed
    return resolved, preparation


def lock_data(session: Write, team_id: UUID, data: DataSpec) -> DataSpec:
    """Lock the named data against deletion until the run that uses it is visible.

    Take this lock before the lock on a run's row: a delete locks the data before the rows of ended runs.

    Returns:
        ``data`` with ids in place of names.

    Raises:
        Invalid: several datasets or tokenizers have the name.
    """
    data = with_ids(session, team_id, data)
    ids = {parsed_id("ds", data.dataset)}
    if data.tokenizer.kind is TokenizerKind.DATASET:
        ids.add(parsed_id("ds", data.tokenizer.source or ""))
    datasets = select(Dataset.id).where(
        Dataset.id.in_([item for item in ids if item]), Dataset.team_id == team_id
    )
    session.execute(datasets.order_by(Dataset.id).with_for_update(read=True))
    if data.tokenizer.kind is TokenizerKind.UPLOADED:
        uploaded = parsed_id("tok", data.tokenizer.source or "")
        tokenizers = select(UploadedTokenizer.id).where(UploadedTokenizer.id == uploaded)
        session.execute(tokenizers.where(UploadedTokenizer.team_id == team_id).with_for_update(read=True))
    return data


def check_data(session: Read, team_id: UUID, data: DataSpec) -> tuple[DataSpec, Preparation | None]:
    """As `resolve_data`, for a spec that is only checked: nothing is created.

    Raises:
        Invalid: as `resolve_data`.
    """
    data = with_ids(session, team_id, data)
    version = _version_of(session, team_id, data)
    tokenizer, file = _resolve_tokenizer(session, team_id, data.tokenizer)
    resolved = data.model_copy(update={"version": version.number, "tokenizer": tokenizer})
    digest = None if file is None else file.digest
    return resolved, find_preparation(session, version, tokenizer, data.validation_fraction, digest)


def with_ids(session: Read, team_id: UUID, data: DataSpec) -> DataSpec:
    """``data`` with the ids of the dataset and the tokenizer that it gives by name.

    Raises:
        Invalid: several datasets or tokenizers have the name.
    """
    tokenizer = data.tokenizer
    if tokenizer.source is not None:
        found = (
            tokenizer_id(session, team_id, tokenizer.source, SOURCE)
            if tokenizer.kind is TokenizerKind.UPLOADED
            else dataset_id(session, team_id, tokenizer.source, SOURCE)
        )
        tokenizer = tokenizer.model_copy(update={"source": found})
    dataset = dataset_id(session, team_id, data.dataset, DATASET)
    return data.model_copy(update={"dataset": dataset, "tokenizer": tokenizer})


def tokenizer_file(session: Read, preparation: Preparation) -> TokenizerFile | None:
    """The file that the preparation's tokenizer is copied from; None if it was deleted."""
    spec = TokenizerSpec.model_validate(preparation.tokenizer)
    assert spec.source is not None, "the tokenizer has a source"
    if spec.kind is TokenizerKind.UPLOADED:
        found = _uploaded_file(session, preparation.team_id, spec.source)
        candidates = [] if found is None else [found]
    else:
        candidates = _trained_files(session, preparation.team_id, spec.source)
    for file in candidates:  # the digest identifies the one that the submission chose
        fraction = preparation.validation_fraction
        if preparation_digest(preparation.version, spec, fraction, file.digest) == preparation.digest:
            return file
    return None


def _resolve_tokenizer(
    session: Read, team_id: UUID, spec: TokenizerSpec
) -> tuple[TokenizerSpec, TokenizerFile | None]:
    if not spec.has_source:
        return spec, None
    file = (
        _uploaded(session, team_id, spec)
        if spec.kind is TokenizerKind.UPLOADED
        else _trained(session, team_id, spec)
    )
    if spec.vocabulary is not None and spec.vocabulary < file.vocabulary:
        message = (
            f"The tokenizer of {spec.source} has {file.vocabulary:,} token ids. Leave the vocabulary empty, or make it "
            "at least as large."
        )
        raise Invalid.at(VOCABULARY, message, spec.vocabulary)
    return spec.model_copy(update={"vocabulary": spec.vocabulary or file.vocabulary}), file


def _uploaded(session: Read, team_id: UUID, spec: TokenizerSpec) -> TokenizerFile:
    assert spec.source is not None
    file = _uploaded_file(session, team_id, spec.source)
    if file is None:
        message = "Your team has no tokenizer with this id or name. Upload its tokenizer.json first; the list shows each id."
        raise Invalid.at(SOURCE, message, spec.source)
    return file


def _trained(session: Read, team_id: UUID, spec: TokenizerSpec) -> TokenizerFile:
    assert spec.source is not None
    dataset = _dataset_of(session, team_id, spec.source)
    if dataset is None:
        raise Invalid.at(SOURCE, NO_DATASET, spec.source)
    files = _trained_files(session, team_id, spec.source)
    if not files:
        message = (
            "This dataset has no BPE tokenizer that is ready. Wait for its preparation, or prepare it with a tokenizer "
            "of kind bpe first."
        )
        raise Invalid.at(SOURCE, message, spec.source)
    if spec.vocabulary is None:
        return files[0]
    exact = [file for file in files if file.vocabulary == spec.vocabulary]
    fitting = [file for file in files if file.vocabulary < spec.vocabulary]
    return (exact or fitting or files)[0]


def _uploaded_file(session: Read, team_id: UUID, source: str) -> TokenizerFile | None:
    found = parsed_id("tok", source)
    row = None if found is None else session.get(UploadedTokenizer, found)
    if row is None or row.team_id != team_id:
        return None
    return TokenizerFile(row.stored_file.object_key, row.stored_file.digest, row.vocabulary)


def _trained_files(session: Read, team_id: UUID, source: str) -> list[TokenizerFile]:
    """The BPE tokenizers of a dataset, newest version first."""
    rows = session.scalars(
        select(Preparation)
        .join(DatasetVersion, DatasetVersion.id == Preparation.version_id)
        .where(DatasetVersion.dataset_id == parsed_id("ds", source), Preparation.team_id == team_id)
        .where(Preparation.state == PreparationState.READY)
        .order_by(DatasetVersion.number.desc(), Preparation.id)
        .options(undefer(Preparation.manifest))
    )
    found = []
    for row in rows:
        spec = TokenizerSpec.model_validate(row.tokenizer)
        if spec.kind is TokenizerKind.BPE:
            digest = ShardManifest.model_validate(row.manifest).tokenizer_digest
            found.append(TokenizerFile(object_key(row, TOKENIZER_NAME), digest, spec.size))
    return found


def _version_of(session: Read, team_id: UUID, data: DataSpec) -> DatasetVersion:
    dataset = _dataset_of(session, team_id, data.dataset)
    if dataset is None:
        raise Invalid.at(DATASET, NO_DATASET, data.dataset)
    version = next((item for item in dataset.versions if data.version in (None, item.number)), None)
    if version is None:
        raise Invalid.at("data.version", describe_versions(dataset), data.version)
    if version.state == VersionState.FAILED:
        message = f"Version {version.number} cannot be used. {version.error} Or name another version."
        raise Invalid.at("data.version", message, version.number)
    return version


def _dataset_of(session: Read, team_id: UUID, dataset: str) -> Dataset | None:
    found = parsed_id("ds", dataset)
    row = None if found is None else session.get(Dataset, found)
    return row if row is not None and row.team_id == team_id else None
