"""Reading a stored file into pieces of documents: one step, which one worker makes from where the last one stopped.

Each piece is stored and committed by itself, with the place where the next one begins.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from sqlalchemy import func, select, update

from trainwright.contracts.api.datasets import VersionState
from trainwright.contracts.recipe import FileFormat, ReadSpec
from trainwright.prepare.documents import Rejected, Source
from trainwright.prepare.pieces import PieceInfo, piece_name, write_pieces
from trainwright.prepare.reading import columns_of, resolve_field
from trainwright.prepare.rows import Position
from trainwright.prepare.sniff import Sniffed, sniff
from trainwright_backend.core.db import Database, Write, now, storable
from trainwright_backend.core.storage import LocalStore
from trainwright_backend.datasets.leases import MOST_LOST_LEASES, is_free, take
from trainwright_backend.datasets.messages import UNREAD
from trainwright_backend.datasets.readings import reading_folder
from trainwright_backend.datasets.steps import Step, Unwanted, end, send_surveys
from trainwright_backend.datasets.tables import DatasetFile, DatasetVersion, Piece, Reading, RejectedLine
from trainwright_backend.uploads.tables import StoredFile

REJECTED_LISTED = 1_000
MOST_REASON_CHARACTERS = 255


@dataclass(frozen=True)
class ReadFile(Step):
    """Read a stored file to its end."""

    name: str
    """One of those that people gave it: its endings say how it is to be read."""

    object_key: str
    bytes: int
    read: ReadSpec
    position: Position | None
    pieces: int
    """That are written."""


def take_reading(session: Write, reading_id: UUID) -> ReadFile | None:
    """Take the lease of a reading that nobody works on."""
    reading = session.get(Reading, reading_id, with_for_update=True)
    if reading is None or reading.state not in UNREAD or not is_free(reading):
        return None
    name = session.scalar(select(DatasetFile.name).where(DatasetFile.reading_id == reading_id).limit(1))
    if name is None:
        return None
    if reading.lease is not None:
        reading.lost_leases += 1
        if reading.lost_leases >= MOST_LOST_LEASES:
            end(session, reading, _lost(reading, name), repeatable=True)
            return None
    reading.state = VersionState.READING
    lease = take(reading)
    session.flush()
    _show_reading(session, reading)
    stored = session.get_one(StoredFile, reading.stored_file_id)
    return ReadFile(
        lease=lease,
        folder=reading_folder(reading.team_id, reading.id),
        name=name,
        object_key=stored.object_key,
        bytes=stored.bytes,
        read=ReadSpec.model_validate(reading.read),
        position=None if reading.position is None else Position.model_validate(reading.position),
        pieces=_count_pieces(session, reading.id),
    )


def read_file(database: Database, store: LocalStore, step: ReadFile, is_unwanted: Callable[[], bool]) -> None:
    """Write the pieces that are missing.

    Raises:
        UnusableDataError: the file cannot be read.
        Unwanted: nobody wants it any more.
    """
    with store.working_folder() as folder:
        source = Source(step.name, store.path_of(step.object_key), folder)
        sniffed = sniff(source)
        field = None
        if sniffed.format is not FileFormat.TEXT:
            field = resolve_field(columns_of(source, sniffed), step.read.field)
        read = step.read.model_copy(update={"field": field})
        _note_format(database, step, sniffed, read)
        for piece in write_pieces(source, sniffed, read, folder, step.position, step.pieces):
            if is_unwanted():
                raise Unwanted
            if piece.documents:
                _store_piece(store, step, piece, folder)
            _note_piece(database, step, piece)
    with database.write() as session:  # of a file that gave no piece at all
        _complete(session, step)


def _note_format(database: Database, step: ReadFile, sniffed: Sniffed, read: ReadSpec) -> None:
    known = {
        "format": sniffed.format.value,
        "compression": sniffed.compression.value,
        "read": read.model_dump(mode="json"),
    }
    with database.write() as session:
        if not session.change(update(Reading).where(*step.lease.conditions()).values(known)):
            raise Unwanted


def _store_piece(store: LocalStore, step: ReadFile, piece: PieceInfo, folder: Path) -> None:
    path = folder / piece_name(piece.number)
    stored = store.put_file(f"{step.folder}/{path.name}", path)
    if stored.digest != piece.digest:
        raise OSError(f"{path.name} was not read back as it was written")
    path.unlink()


def _note_piece(database: Database, step: ReadFile, piece: PieceInfo) -> None:
    """The piece, its rejected lines, and where the next one begins or that it was the last: all or none."""
    with database.write() as session:
        position = None if piece.next_position is None else piece.next_position.model_dump(mode="json")
        noted = session.change(
            update(Reading)
            .where(*step.lease.conditions())
            .values(
                documents=Reading.documents + piece.documents,
                characters=Reading.characters + piece.characters,
                rejected=Reading.rejected + piece.rejected_count,
                read_bytes=min(piece.read_bytes, step.bytes),
                position=position,
                lost_leases=0,
                failures=0,
                touched=now(),
            )
        )
        if not noted:
            raise Unwanted
        if piece.documents:
            session.add(
                Piece(
                    reading_id=step.lease.owner_id,
                    number=piece.number,
                    documents=piece.documents,
                    characters=piece.characters,
                    bytes=piece.bytes,
                    digest=piece.digest,
                )
            )
        _list_rejected(session, step.lease.owner_id, piece.rejected)
        if piece.next_position is None:
            _complete(session, step)


def _list_rejected(session: Write, reading_id: UUID, rows: list[Rejected]) -> None:
    listed = session.scalar(
        select(func.count()).select_from(RejectedLine).where(RejectedLine.reading_id == reading_id)
    )
    first = listed or 0
    session.add_all(
        RejectedLine(
            reading_id=reading_id,
            position=position,
            line=row.line,
            reason=storable(row.reason)[:MOST_REASON_CHARACTERS],
        )
        for position, row in enumerate(rows[: REJECTED_LISTED - first], start=first)
    )


def _complete(session: Write, step: ReadFile) -> None:
    done = session.change(
        update(Reading)
        .where(*step.lease.conditions())
        .values(
            state=VersionState.READY,
            read_bytes=step.bytes,
            lease=None,
            leased_until=None,
            failures=0,
            touched=now(),
        )
    )
    if done:
        send_surveys(session, session.get_one(Reading, step.lease.owner_id))


def _show_reading(session: Write, reading: Reading) -> None:
    """The versions that wait for this reading say that they are being read."""
    users = select(DatasetFile.version_id).where(DatasetFile.reading_id == reading.id)
    waiting = (DatasetVersion.id.in_(users), DatasetVersion.state == VersionState.WAITING)
    session.change(update(DatasetVersion).where(*waiting).values(state=VersionState.READING))


def _count_pieces(session: Write, reading_id: UUID) -> int:
    count = select(func.count()).select_from(Piece).where(Piece.reading_id == reading_id)
    return session.scalar(count) or 0


def _lost(reading: Reading, name: str) -> str:
    return (
        f"{MOST_LOST_LEASES} workers in a row died over {name} after {reading.documents:,} documents. See whether the "
        "machine of the workers runs out of memory, then make the version again with the same files."
    )
