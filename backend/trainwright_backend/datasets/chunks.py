"""The chunks of a version: their object keys, the file of each, and the mask of the documents that are kept.

This module handles rows and names only; its callers read the objects.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import select

from trainwright_backend.core.db import Read
from trainwright_backend.datasets.parsed_files import chunk_key
from trainwright_backend.datasets.tables import DatasetVersion, FileChunk, ParsedFile, VersionChunk


@dataclass(frozen=True)
class ChunkRef:
    """A chunk as a version uses it."""

    parsed_file_id: UUID
    number: int
    """Within its parsed file."""

    documents: int
    file: str
    """Name of its file; in a mixture with the name of the dataset before it."""

    object_key: str
    mask_key: str | None
    """In a mixture: the mask that the source's own curation gave the chunk."""


def version_folder(team_id: UUID, version_id: UUID) -> str:
    """The folder of a version's objects."""
    return f"{team_id}/versions/{version_id}"


def mask_key(team_id: UUID, version_id: UUID, number: int) -> str:
    """Object key of the mask of a version's chunk: one byte per document, 0 if the document is kept."""
    return f"{version_folder(team_id, version_id)}/keep-{number:05d}"


def list_file_chunks(session: Read, team_id: UUID, version: DatasetVersion) -> list[ChunkRef]:
    """All chunks of a version's own files, in the order of its documents."""
    parsed_files = [(file.name, file.parsed_file) for file in version.files if file.parsed_file is not None]
    assert len(parsed_files) == len(version.files), "all files are parsed"
    return list_parsed_chunks(session, team_id, parsed_files)


def list_parsed_chunks(
    session: Read, team_id: UUID, parsed_files: Sequence[tuple[str, ParsedFile]]
) -> list[ChunkRef]:
    """All chunks of parsed files, each given with its name, in order."""
    chunks_by_file: dict[UUID, list[FileChunk]] = {parsed_file.id: [] for _, parsed_file in parsed_files}
    chunks = (
        select(FileChunk)
        .where(FileChunk.parsed_file_id.in_(chunks_by_file))
        .order_by(FileChunk.parsed_file_id, FileChunk.number)
    )
    for chunk in session.scalars(chunks):
        chunks_by_file[chunk.parsed_file_id].append(chunk)
    return [
        ChunkRef(
            parsed_file_id=parsed_file.id,
            number=chunk.number,
            documents=chunk.documents,
            file=name,
            object_key=chunk_key(team_id, parsed_file.id, chunk.number),
            mask_key=None,
        )
        for name, parsed_file in parsed_files
        for chunk in chunks_by_file[parsed_file.id]
    ]


def list_chunks_by_source(session: Read, team_id: UUID, version: DatasetVersion) -> list[list[ChunkRef]]:
    """The chunks of a version by source: its own files are one source, and so is each version of a mixture."""
    if not version.sources:
        return [list_file_chunks(session, team_id, version)]
    return [
        list_mixed_chunks(session, team_id, session.get_one(DatasetVersion, row.source_id))
        for row in version.sources
    ]


def list_mixed_chunks(session: Read, team_id: UUID, source: DatasetVersion) -> list[ChunkRef]:
    """The chunks of a ready version, as a mixture uses them."""
    return [
        ChunkRef(
            chunk.parsed_file_id,
            chunk.number,
            chunk.documents,
            f"{source.dataset.name}/{chunk.file}",
            chunk.object_key,
            mask_key(team_id, source.id, position),
        )
        for position, chunk in enumerate(list_file_chunks(session, team_id, source))
    ]


def list_version_chunks(session: Read, version_id: UUID) -> Sequence[VersionChunk]:
    """The chunks of a ready version, in order."""
    chunks = select(VersionChunk).where(VersionChunk.version_id == version_id)
    return session.scalars(chunks.order_by(VersionChunk.number)).all()
