"""Counting what a curation keeps: for all documents, or for a sample before the curation is applied."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from trainwright.contracts.api.datasets import CountRequest, CurationCounts, MixShare, VersionState
from trainwright.contracts.curation import CurationSpec
from trainwright.prepare.curate import CurationSource, SourceShare, curate
from trainwright_backend.core.db import Database, Read, Write
from trainwright_backend.core.errors import Conflict, Invalid
from trainwright_backend.core.ids import public_id
from trainwright_backend.core.object_store import ObjectStore
from trainwright_backend.datasets.chunks import (
    ChunkRef,
    list_chunks_by_source,
    list_mixed_chunks,
    list_parsed_chunks,
)
from trainwright_backend.datasets.lazy_sequence import LazySequence
from trainwright_backend.datasets.mixtures import describe_versions, find_mixed_versions, with_ids
from trainwright_backend.datasets.names import dataset_id
from trainwright_backend.datasets.parsed_files import find_parsed_file
from trainwright_backend.datasets.service import get_dataset
from trainwright_backend.datasets.tables import DatasetVersion, ParsedFile

MAX_COUNTED_CHUNKS = 64
"""The most chunks whose measures a count reads; it reads at least one per source."""


@dataclass(frozen=True)
class Source:
    """Chunks that are counted together: those of a version's files, or of one version of a mixture."""

    dataset: str
    """Public id."""

    version: int
    chunks: list[ChunkRef]
    weight: float | None


@dataclass(frozen=True)
class CountInput:
    """Everything that a count needs."""

    sources: list[Source]
    rejected: int


def count_curation(
    database: Database, store: ObjectStore, team_id: UUID, request: CountRequest
) -> CurationCounts:
    """Count what a curation would keep of a version's files, or of a mixture.

    Raises:
        NotFound: there is no such dataset.
        Invalid: there is no such version, or the mixture is not possible.
        Conflict: the files were not parsed yet, or not with the curation's settings; or they were deleted in the meantime.
    """
    with database.write() as session:  # nothing is written, but the rows stay locked while they are checked
        counted = _find_input(session, team_id, request)
    try:
        return curate_sources(
            store, counted.sources, request.curation, counted.rejected, None, MAX_COUNTED_CHUNKS
        )
    except FileNotFoundError:
        with database.write() as session:
            if _find_input(session, team_id, request) == counted:
                raise  # nothing was deleted
        message = "The data was deleted while it was counted. Repeat the request to count what is left."
        raise Conflict("deleted_meanwhile", message) from None


def list_sources(session: Read, team_id: UUID, version: DatasetVersion) -> list[Source]:
    """The sources of a version."""
    by_source = list_chunks_by_source(session, team_id, version)
    if not version.sources:
        return [Source(public_id("ds", version.dataset_id), version.number, by_source[0], None)]
    mixed = [session.get_one(DatasetVersion, row.source_id) for row in version.sources]
    return [
        Source(public_id("ds", one.dataset_id), one.number, chunks, row.weight)
        for row, one, chunks in zip(version.sources, mixed, by_source, strict=True)
    ]


def _find_input(session: Write, team_id: UUID, request: CountRequest) -> CountInput:
    if request.curation.mix:
        mix = with_ids(session, team_id, request.curation.mix)
        return CountInput(
            [
                Source(
                    public_id("ds", one.dataset_id),
                    one.number,
                    list_mixed_chunks(session, team_id, one),
                    weight,
                )
                for one, weight in find_mixed_versions(session, team_id, mix, None)
            ],
            rejected=0,
        )
    if request.dataset is None:
        message = "There is nothing to count. Name a dataset, or datasets to mix under curation.mix."
        raise Invalid.at("dataset", message)
    dataset = dataset_id(session, team_id, request.dataset, "dataset")
    version = _version(session, team_id, dataset, request.version)
    parsed_files = _parsed_files(session, version, request.curation)
    chunks = list_parsed_chunks(
        session, team_id, [(file.name, one) for file, one in zip(version.files, parsed_files, strict=True)]
    )
    source = Source(dataset, version.number, chunks, None)
    return CountInput([source], rejected=sum(parsed_file.rejected for parsed_file in parsed_files))


def _version(session: Read, team_id: UUID, dataset: str, number: int | None) -> DatasetVersion:
    row = get_dataset(session, team_id, dataset)
    version = next((version for version in row.versions if number in (None, version.number)), None)
    if version is None:
        raise Invalid.at("version", describe_versions(row), number)
    if not version.files:
        message = (
            f"Version {version.number} is a mixture and has no files. Name its datasets under curation.mix."
        )
        raise Invalid.at("curation.mix", message)
    return version


def _parsed_files(session: Write, version: DatasetVersion, curation: CurationSpec) -> list[ParsedFile]:
    found = []
    for file in version.files:
        parsed_file = find_parsed_file(session, file.stored_file_id, curation.read, file.name)
        if parsed_file is None:
            raise Conflict(
                "not_read_this_way",
                f"{file.name} has not been read with these settings, so there is nothing to count. Create a version "
                "with them to read the files.",
            )
        if parsed_file.state != VersionState.READY:
            why = parsed_file.error or "Wait until its files are read."
            raise Conflict("version_not_ready", f"{file.name} is {parsed_file.state}. {why}")
        found.append(parsed_file)
    return found


def curate_sources(
    store: ObjectStore,
    sources: Sequence[Source],
    curation: CurationSpec,
    rejected: int,
    on_mask: Callable[[int, bytes], None] | None,
    max_chunks: int | None = None,
    between_chunks: Callable[[], None] = lambda: None,
) -> CurationCounts:
    """Apply ``curation`` to the documents of ``sources`` and count them.

    Args:
        rejected: rows that gave no document.
        on_mask: called with each chunk's position among all chunks and its mask of kept documents.
        max_chunks: read the measures of this many chunks at most and extrapolate; None reads all.
        between_chunks: called after each chunk that was read.
    """
    survey_sources = [_survey_source(store, source) for source in sources]
    with store.working_folder() as folder:
        result = curate(survey_sources, curation, on_mask, rejected, max_chunks, folder, between_chunks)
    return CurationCounts(
        **result.model_dump(exclude={"shares"}),
        mix=_mix(sources, result.shares, result.characters) if curation.mix else [],
    )


def _survey_source(store: ObjectStore, source: Source) -> CurationSource:
    keys = [chunk.mask_key for chunk in source.chunks if chunk.mask_key is not None]
    return CurationSource(
        chunks=LazySequence([chunk.object_key for chunk in source.chunks], store.local_file),
        weight=source.weight,
        documents=[chunk.documents for chunk in source.chunks],
        masks=None if source.weight is None else LazySequence(keys, store.read),
    )


def _mix(sources: Sequence[Source], shares: Sequence[SourceShare], characters: int) -> list[MixShare]:
    return [
        MixShare(
            dataset=source.dataset,
            version=source.version,
            documents=share.documents,
            characters=share.characters,
            share=share.characters / characters if characters else 0.0,
        )
        for source, share in zip(sources, shares, strict=True)
    ]
