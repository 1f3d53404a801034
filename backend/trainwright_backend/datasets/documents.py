"""The documents of a version as they were read, page by page, and the rows that gave none."""

from dataclasses import dataclass
from itertools import islice
from uuid import UUID

from sqlalchemy import select

from trainwright.contracts.api.datasets import DocumentSample, VersionState
from trainwright.contracts.api.envelopes import Page
from trainwright.contracts.api.uploads import RejectedDocument
from trainwright.prepare.pieces import read_piece
from trainwright.prepare.survey import Kept
from trainwright_backend.core.db import Database, Read
from trainwright_backend.core.errors import Conflict, Invalid
from trainwright_backend.core.storage import LocalStore
from trainwright_backend.datasets.pieces import mask_key, pieces_of
from trainwright_backend.datasets.service import get_version
from trainwright_backend.datasets.tables import RejectedLine, VersionPiece

SHOWN_CHARACTERS = 2_000
REJECTED_LISTED = 1_000


@dataclass(frozen=True)
class Stretch:
    """Documents of one piece that a page shows."""

    first: int
    """Number, within the version, of the piece's first document."""

    skip: int
    file: str
    object_key: str
    mask_key: str


def list_documents(
    database: Database,
    store: LocalStore,
    team_id: UUID,
    dataset: str,
    number: int,
    limit: int,
    cursor: str | None,
) -> Page[DocumentSample]:
    """A page of a version's documents, in their order; those too that its recipe leaves out.

    Raises:
        NotFound: there is no such dataset or version.
        Conflict: the version is not ready.
    """
    start = _number_in(cursor)
    with database.read() as session:
        stretches, total = _stretches(session, team_id, dataset, number, start, limit)
    shown: list[DocumentSample] = []
    try:
        for stretch in stretches:
            shown += _samples(store, stretch, limit - len(shown))
    except FileNotFoundError:
        with database.read() as session:
            get_version(session, team_id, dataset, number)  # says so if it was deleted meanwhile
        raise
    after = start + len(shown)
    return Page(items=shown, next_cursor=str(after) if after < total else None)


def list_rejected(session: Read, team_id: UUID, dataset: str, number: int) -> list[RejectedDocument]:
    """The first rows of a version's files that gave no document."""
    version = get_version(session, team_id, dataset, number)
    found: list[RejectedDocument] = []
    for file in version.files:
        rows = session.scalars(
            select(RejectedLine)
            .where(RejectedLine.reading_id == file.reading_id)
            .order_by(RejectedLine.position)
            .limit(REJECTED_LISTED - len(found))
        )
        found += [RejectedDocument(file=file.name, line=row.line, reason=row.reason) for row in rows]
    return found


def _stretches(
    session: Read, team_id: UUID, dataset: str, number: int, start: int, limit: int
) -> tuple[list[Stretch], int]:
    """Where the documents from ``start`` on lie, and how many the version has."""
    version = get_version(session, team_id, dataset, number)
    if version.state != VersionState.READY:
        why = version.error or "Wait until its files are read."
        raise Conflict("version_not_ready", f"Version {number} is {version.state}. {why}")
    rows = session.scalars(
        select(VersionPiece)
        .where(VersionPiece.version_id == version.id, VersionPiece.first_document < start + limit)
        .where(VersionPiece.first_document + VersionPiece.documents > start)
        .order_by(VersionPiece.number)
    ).all()
    pieces = [piece for source in pieces_of(session, team_id, version) for piece in source]
    return [
        Stretch(
            first=row.first_document,
            skip=max(start - row.first_document, 0),
            file=pieces[row.number].file,
            object_key=pieces[row.number].object_key,
            mask_key=mask_key(team_id, version.id, row.number),
        )
        for row in rows
    ], sum(piece.documents for piece in pieces)


def _samples(store: LocalStore, stretch: Stretch, count: int) -> list[DocumentSample]:
    mask = store.read(stretch.mask_key)
    documents = islice(read_piece(store.path_of(stretch.object_key)), stretch.skip, stretch.skip + count)
    return [
        DocumentSample(
            number=stretch.first + position,
            file=stretch.file,
            line=document.line,
            characters=len(document.text),
            text=document.text[:SHOWN_CHARACTERS],
            kept=mask[position] == Kept.KEPT,
            dropped_by=None if mask[position] == Kept.KEPT else Kept(mask[position]).name.lower(),
        )
        for position, document in enumerate(documents, start=stretch.skip)
    ]


def _number_in(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= 15):
        raise Invalid.at(
            "cursor", "This is no cursor of this list. Pass on what the last page said.", cursor[:80]
        )
    return int(cursor)
