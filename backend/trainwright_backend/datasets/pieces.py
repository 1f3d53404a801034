"""The pieces of a version: where they lie, which file each is of, and which of its documents are kept.

Only rows and names; the bytes are read by those who ask.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import select

from trainwright_backend.core.db import Read
from trainwright_backend.core.storage import LocalStore
from trainwright_backend.datasets.readings import piece_key
from trainwright_backend.datasets.tables import DatasetVersion, Piece, Reading, VersionPiece


@dataclass(frozen=True)
class PieceOfVersion:
    """One piece as a version uses it."""

    reading_id: UUID
    number: int
    """Within its reading."""

    documents: int
    file: str
    """Name of the file that it is of; in a mixture, after the name of the dataset."""

    object_key: str
    mask_key: str | None
    """In a mixture, where its source keeps what its own recipe made of the piece."""


def version_folder(team_id: UUID, version_id: UUID) -> str:
    """The folder of a version's objects."""
    return f"{team_id}/versions/{version_id}"


def mask_key(team_id: UUID, version_id: UUID, number: int) -> str:
    """Where the keep mask of a version's piece lies: a byte a document, 0 where it is kept."""
    return f"{version_folder(team_id, version_id)}/keep-{number:05d}"


def pieces_of_files(session: Read, team_id: UUID, version: DatasetVersion) -> list[PieceOfVersion]:
    """All pieces of the files of a version, in the order of its documents."""
    readings = [(file.name, file.reading) for file in version.files if file.reading is not None]
    assert len(readings) == len(version.files), "the version was read"
    return pieces_of_readings(session, team_id, readings)


def pieces_of_readings(
    session: Read, team_id: UUID, readings: Sequence[tuple[str, Reading]]
) -> list[PieceOfVersion]:
    """All pieces of files, each named and read in one way, in order."""
    by_reading: dict[UUID, list[Piece]] = {reading.id: [] for _, reading in readings}
    wanted = select(Piece).where(Piece.reading_id.in_(by_reading)).order_by(Piece.reading_id, Piece.number)
    for piece in session.scalars(wanted):
        by_reading[piece.reading_id].append(piece)
    return [
        PieceOfVersion(
            reading_id=reading.id,
            number=piece.number,
            documents=piece.documents,
            file=name,
            object_key=piece_key(team_id, reading.id, piece.number),
            mask_key=None,
        )
        for name, reading in readings
        for piece in by_reading[reading.id]
    ]


def pieces_of(session: Read, team_id: UUID, version: DatasetVersion) -> list[list[PieceOfVersion]]:
    """The pieces of a version, source by source: its own files are one, and so is each version of a mixture."""
    if not version.sources:
        return [pieces_of_files(session, team_id, version)]
    return [
        mixed_pieces(session, team_id, session.get_one(DatasetVersion, row.source_id))
        for row in version.sources
    ]


def mixed_pieces(session: Read, team_id: UUID, source: DatasetVersion) -> list[PieceOfVersion]:
    """The pieces of a version that is ready, as a mixture takes them."""
    return [
        PieceOfVersion(
            piece.reading_id,
            piece.number,
            piece.documents,
            f"{source.dataset.name}/{piece.file}",
            piece.object_key,
            mask_key(team_id, source.id, position),
        )
        for position, piece in enumerate(pieces_of_files(session, team_id, source))
    ]


@dataclass(frozen=True)
class StoredMasks(Sequence[bytes]):
    """Masks that are read when they are asked for: those of a large version would fill the memory."""

    store: LocalStore
    keys: Sequence[str]

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, index: int) -> bytes:  # type: ignore[override]
        return self.store.read(self.keys[index])

    def __iter__(self) -> Iterator[bytes]:
        return (self.store.read(key) for key in self.keys)


def rows_of(session: Read, version_id: UUID) -> Sequence[VersionPiece]:
    """The pieces of a version that is ready, in order."""
    wanted = select(VersionPiece).where(VersionPiece.version_id == version_id)
    return session.scalars(wanted.order_by(VersionPiece.number)).all()
