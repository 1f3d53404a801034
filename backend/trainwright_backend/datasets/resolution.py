"""What a submission's `data` section means: which version, which tokenizer, which preparation.

A version or a tokenizer that is used is held until the transaction ends, so that a delete at the same time finds what
uses it, or this finds nothing to use.
"""

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.orm import undefer

from trainwright.contracts.api.datasets import PreparationState, VersionState
from trainwright.contracts.data_spec import DataSpec, TokenizerKind, TokenizerSpec
from trainwright.contracts.shards import TOKENIZER_NAME, ShardManifest
from trainwright_backend.core.db import Read, Write
from trainwright_backend.core.errors import Invalid, NotFound
from trainwright_backend.core.ids import Prefix, parse_id
from trainwright_backend.datasets.messages import UNREAD, Work, send_step
from trainwright_backend.datasets.preparations import (
    find_or_make,
    find_preparation,
    object_key,
    preparation_digest,
)
from trainwright_backend.datasets.recipes import which_versions
from trainwright_backend.datasets.tables import Dataset, DatasetVersion, Preparation, UploadedTokenizer

SOURCE = "data.tokenizer.source"
VOCABULARY = "data.tokenizer.vocabulary"
NO_DATASET = "Your team has no dataset of this id. The datasets page shows each id."


@dataclass(frozen=True)
class TokenizerFile:
    """A `tokenizer.json` that is not made from the data."""

    object_key: str
    digest: str
    """SHA-256, in hex."""

    vocabulary: int


def resolve_data(session: Write, team_id: UUID, data: DataSpec) -> tuple[DataSpec, Preparation]:
    """The preparation that a submission asks for, made and set to work where there is none yet.

    Returns:
        ``data`` with nothing left open, and the preparation in whatever state it is.

    Raises:
        Invalid: there is no such dataset, version or tokenizer, or it cannot be used.
    """
    hold_data(session, team_id, data)
    version = _version_of(session, team_id, data)
    tokenizer, file = _resolve_tokenizer(session, team_id, data.tokenizer)
    resolved = data.model_copy(update={"version": version.number, "tokenizer": tokenizer})
    digest = None if file is None else file.digest
    made = find_or_make(session, team_id, version, tokenizer, data.validation_fraction, digest)
    if version.state in UNREAD:
        send_step(session, Work.SURVEY, version.id)  # of an older release: it may never have been read
    return resolved, made


def hold_data(session: Write, team_id: UUID, data: DataSpec) -> None:
    """Keep what is named from being deleted until the run that uses it is there to be seen.

    Who holds a run's row too takes this first: a delete holds the data when it comes to the rows of ended runs.
    """
    ids = {_id("ds", data.dataset)}
    if data.tokenizer.kind is TokenizerKind.DATASET:
        ids.add(_id("ds", data.tokenizer.source or ""))
    held = select(Dataset.id).where(Dataset.id.in_([one for one in ids if one]), Dataset.team_id == team_id)
    session.execute(held.order_by(Dataset.id).with_for_update(read=True))
    if data.tokenizer.kind is TokenizerKind.UPLOADED:
        tokenizer_id = _id("tok", data.tokenizer.source or "")
        kept = select(UploadedTokenizer.id).where(UploadedTokenizer.id == tokenizer_id)
        session.execute(kept.where(UploadedTokenizer.team_id == team_id).with_for_update(read=True))


def check_data(session: Read, team_id: UUID, data: DataSpec) -> tuple[DataSpec, Preparation | None]:
    """As `resolve_data`, for a spec that is only looked at: nothing is made.

    Raises:
        Invalid: as `resolve_data`.
    """
    version = _version_of(session, team_id, data)
    tokenizer, file = _resolve_tokenizer(session, team_id, data.tokenizer)
    resolved = data.model_copy(update={"version": version.number, "tokenizer": tokenizer})
    digest = None if file is None else file.digest
    return resolved, find_preparation(session, version, tokenizer, data.validation_fraction, digest)


def tokenizer_file(session: Read, preparation: Preparation) -> TokenizerFile | None:
    """The file that the preparation's tokenizer is copied from; None when it is gone."""
    spec = TokenizerSpec.model_validate(preparation.tokenizer)
    assert spec.source is not None, "the tokenizer is not made from the data"
    if spec.kind is TokenizerKind.UPLOADED:
        found = _uploaded_file(session, preparation.team_id, spec.source)
        candidates = [] if found is None else [found]
    else:
        candidates = _trained_files(session, preparation.team_id, spec.source)
    for file in candidates:  # the digest says which one was meant at the submission
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
        message = (
            "Your team has no tokenizer of this id. Upload its tokenizer.json first; the list shows each id."
        )
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
    tokenizer_id = _id("tok", source)
    row = None if tokenizer_id is None else session.get(UploadedTokenizer, tokenizer_id)
    if row is None or row.team_id != team_id:
        return None
    return TokenizerFile(row.stored_file.object_key, row.stored_file.digest, row.vocabulary)


def _trained_files(session: Read, team_id: UUID, source: str) -> list[TokenizerFile]:
    """The BPE tokenizers of a dataset, of its newest version first."""
    rows = session.scalars(
        select(Preparation)
        .join(DatasetVersion, DatasetVersion.id == Preparation.version_id)
        .where(DatasetVersion.dataset_id == _id("ds", source), Preparation.team_id == team_id)
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
        raise Invalid.at("data.dataset", NO_DATASET, data.dataset)
    version = next((one for one in dataset.versions if data.version in (None, one.number)), None)
    if version is None:
        raise Invalid.at("data.version", which_versions(dataset), data.version)
    if version.state == VersionState.FAILED:
        message = f"Version {version.number} cannot be used. {version.error} Or name another version."
        raise Invalid.at("data.version", message, version.number)
    return version


def _dataset_of(session: Read, team_id: UUID, dataset: str) -> Dataset | None:
    dataset_id = _id("ds", dataset)
    found = None if dataset_id is None else session.get(Dataset, dataset_id)
    return found if found is not None and found.team_id == team_id else None


def _id(prefix: Prefix, text: str) -> UUID | None:
    try:
        return parse_id(prefix, text)
    except NotFound:
        return None
