"""Readings: stored files read into pieces of documents. Found or made, shared by versions, and dropped with the last.

How a file is read follows from its bytes, its name's endings and the `ReadSpec`; a reading is named by these. The work
itself: `work_readings`.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import PurePosixPath
from uuid import UUID

from sqlalchemy import delete, exists, or_, select
from sqlalchemy.exc import IntegrityError

from trainwright.contracts.api.datasets import VersionState
from trainwright.contracts.recipe import ReadSpec
from trainwright.prepare.pieces import piece_name
from trainwright.prepare.sniff import COMPRESSED_NAMES, JSON_NAMES, TABLE_NAMES, kind_of_name
from trainwright_backend.core.db import Write, now, storable
from trainwright_backend.core.doomed import doom
from trainwright_backend.core.errors import Invalid
from trainwright_backend.core.ids import new_id
from trainwright_backend.datasets.messages import Work, send_step
from trainwright_backend.datasets.tables import DatasetFile, DatasetVersion, Reading

PIECE_FORMAT = 1
"""Raised when the same file would give other pieces, so that old ones are not taken for new."""

FILES_AT_ONCE = 500
"""Of one query."""

TELLING = frozenset({*COMPRESSED_NAMES, *JSON_NAMES, *TABLE_NAMES, ".parquet"})
"""Endings of names that say something about the bytes."""


def reading_folder(team_id: UUID, reading_id: UUID) -> str:
    """The folder of a reading's objects."""
    return f"{team_id}/readings/{reading_id}"


def piece_key(team_id: UUID, reading_id: UUID, number: int) -> str:
    """Where a piece lies in the object store."""
    return f"{reading_folder(team_id, reading_id)}/{piece_name(number)}"


def find_reading(session: Write, stored_file_id: UUID, read: ReadSpec, name: str) -> Reading | None:
    """The reading of a stored file under ``name``, kept from being dropped until the transaction ends.

    Raises:
        Invalid: no column can have the name of the field.
    """
    check_field(read)
    same = Reading.digest == _digest(read, name)
    if read.field is not None:  # one that was to find the field by itself may have found this one
        unnamed = _digest(read.model_copy(update={"field": None}), name)
        resolved = Reading.read["field"].as_string() == read.field
        same = or_(same, (Reading.digest == unnamed) & resolved & (Reading.state == VersionState.READY))
    wanted = select(Reading).where(Reading.stored_file_id == stored_file_id, same).order_by(Reading.id)
    return session.scalars(wanted.limit(1).with_for_update(read=True, key_share=True)).first()


def check_field(read: ReadSpec) -> None:
    """Refuse a field that no column can have.

    Raises:
        Invalid: it holds what is no text.
    """
    if read.field is not None and storable(read.field) != read.field:
        message = "No column has such a name: it holds characters that are no text. Choose one that the preview lists."
        raise Invalid.at("recipe.read.field", message, read.field)


def read_files(session: Write, team_id: UUID, version: DatasetVersion, read: ReadSpec) -> None:
    """See to it that each file of ``version`` has a reading; those that are new or failed are put to work."""
    check_field(read)
    unread = [file for file in version.files if file.reading_id is None]
    found = _find_all(session, unread, read)
    missing = {
        _key(file, read): _new_reading(team_id, file.stored_file_id, read, file.name)
        for file in unread
        if _key(file, read) not in found
    }
    try:
        with session.begin_nested():
            session.add_all(missing.values())
        found |= missing
    except IntegrityError:  # somebody else was faster with one of them
        missing = {}
    for file in unread:
        file.reading = found.get(_key(file, read)) or _find_or_make(
            session, team_id, file.stored_file_id, read, file.name
        )
    session.flush()
    for reading in missing.values():
        send_step(session, Work.READ, reading.id)
    for reading in {file.reading for file in unread if file.reading is not None}:
        if reading.state == VersionState.FAILED:
            _begin_anew(session, reading)


def drop_unused_readings(session: Write, team_id: UUID, reading_ids: Iterable[UUID]) -> None:
    """Delete those of the readings that no version names any more; their bytes follow."""
    for reading_id in sorted(set(reading_ids)):
        used = exists(select(DatasetFile.position).where(DatasetFile.reading_id == reading_id))
        # A version that is made meanwhile holds the reading: then its foreign key says no.
        with suppress(IntegrityError), session.begin_nested():
            if session.change(delete(Reading).where(Reading.id == reading_id, ~used)):
                doom(session, reading_folder(team_id, reading_id))


def _find_all(
    session: Write, files: Sequence[DatasetFile], read: ReadSpec
) -> dict[tuple[UUID, str], Reading]:
    """The readings that there are of many files, held as `find_reading` does; by stored file and digest."""
    unnamed = read.model_copy(update={"field": None})
    asked = {_digest(read, file.name): _digest(read, file.name) for file in files}
    asked = {_digest(unnamed, file.name): _digest(read, file.name) for file in files} | asked
    found = {}
    for first in range(0, len(files), FILES_AT_ONCE):
        ids = {file.stored_file_id for file in files[first : first + FILES_AT_ONCE]}
        wanted = select(Reading).where(Reading.stored_file_id.in_(ids), Reading.digest.in_(asked))
        for row in session.scalars(wanted.order_by(Reading.id).with_for_update(read=True, key_share=True)):
            if row.digest == asked[row.digest] or _has_found(row, read):
                found[row.stored_file_id, asked[row.digest]] = row
    return found


def _has_found(reading: Reading, read: ReadSpec) -> bool:
    """Whether a reading that was to find its field by itself found the one that is asked for."""
    return reading.state == VersionState.READY and reading.read.get("field") == read.field


def _key(file: DatasetFile, read: ReadSpec) -> tuple[UUID, str]:
    return file.stored_file_id, _digest(read, file.name)


def _find_or_make(session: Write, team_id: UUID, stored_file_id: UUID, read: ReadSpec, name: str) -> Reading:
    """One reading, when another transaction makes some of the same."""
    found = find_reading(session, stored_file_id, read, name)
    if found is not None:
        return found
    made = _new_reading(team_id, stored_file_id, read, name)
    try:
        with session.begin_nested():
            session.add(made)
    except IntegrityError:
        found = find_reading(session, stored_file_id, read, name)
        assert found is not None, "what stood in the way is there to be found"
        return found
    send_step(session, Work.READ, made.id)
    return made


def _new_reading(team_id: UUID, stored_file_id: UUID, read: ReadSpec, name: str) -> Reading:
    return Reading(
        id=new_id(),
        team_id=team_id,
        stored_file_id=stored_file_id,
        digest=_digest(read, name),
        read=read.model_dump(mode="json"),
        state=VersionState.WAITING,
    )


def _begin_anew(session: Write, reading: Reading) -> None:
    """Pieces that are written stay. If the bytes are at fault, it fails again with the same words."""
    reading.state = VersionState.WAITING
    reading.error = None
    reading.failures = reading.lost_leases = 0
    reading.touched = now()
    send_step(session, Work.READ, reading.id)


def _digest(read: ReadSpec, name: str) -> str:
    asked = {"format": PIECE_FORMAT, "endings": _endings(name), "read": read.model_dump(mode="json")}
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


def _endings(name: str) -> list[str]:
    """What a name says about the bytes: as what they were sent, and how they are compressed."""
    path = PurePosixPath(name.lower())
    return [word for word in (kind_of_name(name), path.suffix) if word in TELLING]
