"""The documents of a version, page by page, and the rows that were rejected."""

from dataclasses import dataclass
from itertools import islice
from uuid import UUID

from sqlalchemy import select

from trainwright.contracts.api.datasets import DocumentSample, VersionState
from trainwright.contracts.api.envelopes import Page
from trainwright.contracts.api.uploads import RejectedDocument
from trainwright.prepare.chunks import read_chunk
from trainwright.prepare.curate import MaskValue
from trainwright_backend.core.db import Database, Read
from trainwright_backend.core.errors import Conflict, Invalid
from trainwright_backend.core.object_store import ObjectStore
from trainwright_backend.datasets.chunks import list_chunks_by_source, mask_key
from trainwright_backend.datasets.service import get_version
from trainwright_backend.datasets.tables import MAX_REJECTED_LISTED, RejectedLine, VersionChunk

SHOWN_CHARACTERS = 2_000


@dataclass(frozen=True)
class ChunkPage:
    """The documents of one chunk that a page shows."""

    first: int
    """Number of the chunk's first document within the version."""

    skip: int
    file: str
    object_key: str
    mask_key: str


def list_documents(
    database: Database,
    store: ObjectStore,
    team_id: UUID,
    dataset: str,
    number: int,
    limit: int,
    cursor: str | None,
) -> Page[DocumentSample]:
    """A page of a version's documents, in order, including those that its curation drops.

    Raises:
        NotFound: there is no such dataset or version.
        Conflict: the version is not ready.
    """
    start = _number_in(cursor)
    with database.read() as session:
        chunks, total = _find_chunks(session, team_id, dataset, number, start, limit)
    shown: list[DocumentSample] = []
    try:
        for chunk in chunks:
            shown += _samples(store, chunk, limit - len(shown))
    except FileNotFoundError:
        with database.read() as session:
            get_version(
                session, team_id, dataset, number
            )  # raises NotFound if it was deleted in the meantime
        raise
    after = start + len(shown)
    return Page(items=shown, next_cursor=str(after) if after < total else None)


def list_rejected(session: Read, team_id: UUID, dataset: str, number: int) -> list[RejectedDocument]:
    """The first rejected rows of a version's files."""
    version = get_version(session, team_id, dataset, number)
    found: list[RejectedDocument] = []
    for file in version.files:
        rows = session.scalars(
            select(RejectedLine)
            .where(RejectedLine.parsed_file_id == file.parsed_file_id)
            .order_by(RejectedLine.position)
            .limit(MAX_REJECTED_LISTED - len(found))
        )
        found += [RejectedDocument(file=file.name, line=row.line, reason=row.reason) for row in rows]
    return found


def _find_chunks(
    session: Read, team_id: UUID, dataset: str, number: int, start: int, limit: int
) -> tuple[list[ChunkPage], int]:
    """The chunks that contain the documents from ``start`` on, and the version's number of documents."""
    version = get_version(session, team_id, dataset, number)
    if version.state != VersionState.READY:
        why = version.error or "Wait until its files are read."
        raise Conflict("version_not_ready", f"Version {number} is {version.state}. {why}")
    rows = session.scalars(
        select(VersionChunk)
        .where(VersionChunk.version_id == version.id, VersionChunk.first_document < start + limit)
        .where(VersionChunk.first_document + VersionChunk.documents > start)
        .order_by(VersionChunk.number)
    ).all()
    chunks = [chunk for source in list_chunks_by_source(session, team_id, version) for chunk in source]
    return [
        ChunkPage(
            first=row.first_document,
            skip=max(start - row.first_document, 0),
            file=chunks[row.number].file,
            object_key=chunks[row.number].object_key,
            mask_key=mask_key(team_id, version.id, row.number),
        )
        for row in rows
    ], sum(chunk.documents for chunk in chunks)


def _samples(store: ObjectStore, chunk: ChunkPage, count: int) -> list[DocumentSample]:
    mask = store.read(chunk.mask_key)
    documents = islice(read_chunk(store.local_file(chunk.object_key)), chunk.skip, chunk.skip + count)
    return [
        DocumentSample(
            number=chunk.first + position,
            file=chunk.file,
            line=document.line,
            characters=len(document.text),
            text=document.text[:SHOWN_CHARACTERS],
            kept=mask[position] == MaskValue.KEPT,
            dropped_by=None if mask[position] == MaskValue.KEPT else MaskValue(mask[position]).name.lower(),
        )
        for position, document in enumerate(documents, start=chunk.skip)
    ]


def _number_in(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= 15):
        raise Invalid.at(
            "cursor", "This is not a cursor of this list. Use the next_cursor of the last page.", cursor[:80]
        )
    return int(cursor)
