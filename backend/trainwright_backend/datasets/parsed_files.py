"""Parsed files: stored files that were read and split into chunks of documents.

Versions share a parsed file, and it is deleted with the last of them. How a file is parsed follows from its content, the
extensions of its name and the `ReadSpec`; the digest covers these. `jobs.parsing` does the parsing.
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
from trainwright.contracts.curation import ReadSpec
from trainwright.contracts.file_types import COMPRESSED_NAMES, JSON_NAMES, TABLE_NAMES, suffix_of_name
from trainwright.prepare.chunks import chunk_name
from trainwright_backend.core.db import Write, now, storable
from trainwright_backend.core.deletion_queue import queue_deletion
from trainwright_backend.core.errors import Invalid
from trainwright_backend.core.ids import new_id
from trainwright_backend.datasets.job_queue import JobKind, send_job
from trainwright_backend.datasets.tables import DatasetFile, DatasetVersion, ParsedFile

CHUNK_FORMAT = 1
"""Increased when the same file would give different chunks, so that old chunks are not reused."""

FILES_PER_QUERY = 500

SIGNIFICANT_EXTENSIONS = frozenset({*COMPRESSED_NAMES, *JSON_NAMES, *TABLE_NAMES, ".parquet"})
"""Extensions that determine how a file is parsed."""


def parsed_file_folder(team_id: UUID, parsed_file_id: UUID) -> str:
    """The folder of a parsed file's objects. `readings` is the name that older releases gave it."""
    return f"{team_id}/readings/{parsed_file_id}"


def chunk_key(team_id: UUID, parsed_file_id: UUID, number: int) -> str:
    """Object key of a chunk."""
    return f"{parsed_file_folder(team_id, parsed_file_id)}/{chunk_name(number)}"


def find_parsed_file(session: Write, stored_file_id: UUID, read: ReadSpec, name: str) -> ParsedFile | None:
    """The parsed file of a stored file called ``name``, locked against deletion until the transaction ends.

    Raises:
        Invalid: no column can have the name in ``read.field``.
    """
    check_field(read)
    same = ParsedFile.digest == _digest(read, name)
    if read.field is not None:  # a parsed file that chose the field itself may have chosen this one
        unnamed = _digest(read.model_copy(update={"field": None}), name)
        resolved = ParsedFile.read["field"].as_string() == read.field
        same = or_(same, (ParsedFile.digest == unnamed) & resolved & (ParsedFile.state == VersionState.READY))
    wanted = (
        select(ParsedFile).where(ParsedFile.stored_file_id == stored_file_id, same).order_by(ParsedFile.id)
    )
    return session.scalars(wanted.limit(1).with_for_update(read=True, key_share=True)).first()


def check_field(read: ReadSpec) -> None:
    """Refuse a field name that no column can have.

    Raises:
        Invalid: the name contains characters that are not text.
    """
    if read.field is not None and storable(read.field) != read.field:
        message = "No column can have this name: it contains characters that are not text. Choose a field from the preview."
        raise Invalid.at("curation.read.field", message, read.field)


def ensure_parsed(session: Write, team_id: UUID, version: DatasetVersion, read: ReadSpec) -> None:
    """Give every file of ``version`` a parsed file, and queue those that are new or failed."""
    check_field(read)
    unread = [file for file in version.files if file.parsed_file_id is None]
    found = _find_all(session, unread, read)
    missing = {
        _key(file, read): _new_parsed_file(team_id, file.stored_file_id, read, file.name)
        for file in unread
        if _key(file, read) not in found
    }
    try:
        with session.begin_nested():
            session.add_all(missing.values())
        found |= missing
    except IntegrityError:  # another transaction created one of them first
        missing = {}
    for file in unread:
        file.parsed_file = found.get(_key(file, read)) or _find_or_create(
            session, team_id, file.stored_file_id, read, file.name
        )
    session.flush()
    for parsed_file in missing.values():
        send_job(session, JobKind.PARSE, parsed_file.id)
    for parsed_file in {file.parsed_file for file in unread if file.parsed_file is not None}:
        if parsed_file.state == VersionState.FAILED:
            _restart(session, parsed_file)


def delete_unused_parsed_files(session: Write, team_id: UUID, parsed_file_ids: Iterable[UUID]) -> None:
    """Delete the parsed files that no version uses any more, and queue their objects for deletion."""
    for parsed_file_id in sorted(set(parsed_file_ids)):
        used = exists(select(DatasetFile.position).where(DatasetFile.parsed_file_id == parsed_file_id))
        # A version created in the meantime locks the parsed file: then its foreign key prevents this.
        with suppress(IntegrityError), session.begin_nested():
            if session.change(delete(ParsedFile).where(ParsedFile.id == parsed_file_id, ~used)):
                queue_deletion(session, parsed_file_folder(team_id, parsed_file_id))


def _find_all(
    session: Write, files: Sequence[DatasetFile], read: ReadSpec
) -> dict[tuple[UUID, str], ParsedFile]:
    """The existing parsed files of ``files``, locked as by `find_parsed_file`, by stored file and digest."""
    unnamed = read.model_copy(update={"field": None})
    requested = {_digest(read, file.name): _digest(read, file.name) for file in files}
    requested = {_digest(unnamed, file.name): _digest(read, file.name) for file in files} | requested
    found = {}
    for first in range(0, len(files), FILES_PER_QUERY):
        ids = {file.stored_file_id for file in files[first : first + FILES_PER_QUERY]}
        wanted = select(ParsedFile).where(
            ParsedFile.stored_file_id.in_(ids), ParsedFile.digest.in_(requested)
        )
        for row in session.scalars(wanted.order_by(ParsedFile.id).with_for_update(read=True, key_share=True)):
            if row.digest == requested[row.digest] or _chose_field(row, read):
                found[row.stored_file_id, requested[row.digest]] = row
    return found


def _chose_field(parsed_file: ParsedFile, read: ReadSpec) -> bool:
    """Whether a parsed file that chose its field itself chose the requested one."""
    return parsed_file.state == VersionState.READY and parsed_file.read.get("field") == read.field


def _key(file: DatasetFile, read: ReadSpec) -> tuple[UUID, str]:
    return file.stored_file_id, _digest(read, file.name)


def _find_or_create(
    session: Write, team_id: UUID, stored_file_id: UUID, read: ReadSpec, name: str
) -> ParsedFile:
    """One parsed file, while another transaction creates some of the same."""
    found = find_parsed_file(session, stored_file_id, read, name)
    if found is not None:
        return found
    created = _new_parsed_file(team_id, stored_file_id, read, name)
    try:
        with session.begin_nested():
            session.add(created)
    except IntegrityError:
        found = find_parsed_file(session, stored_file_id, read, name)
        assert found is not None, "the row that conflicted exists"
        return found
    send_job(session, JobKind.PARSE, created.id)
    return created


def _new_parsed_file(team_id: UUID, stored_file_id: UUID, read: ReadSpec, name: str) -> ParsedFile:
    return ParsedFile(
        id=new_id(),
        team_id=team_id,
        stored_file_id=stored_file_id,
        digest=_digest(read, name),
        read=read.model_dump(mode="json"),
        state=VersionState.WAITING,
    )


def _restart(session: Write, parsed_file: ParsedFile) -> None:
    """Parse a failed file again. Chunks that were written stay; a defective file fails again with the same error."""
    parsed_file.state = VersionState.WAITING
    parsed_file.error = None
    parsed_file.failures = parsed_file.expired_leases = 0
    parsed_file.last_activity = now()
    send_job(session, JobKind.PARSE, parsed_file.id)


def _digest(read: ReadSpec, name: str) -> str:
    parsed_as = {"format": CHUNK_FORMAT, "endings": _endings(name), "read": read.model_dump(mode="json")}
    return hashlib.sha256(json.dumps(parsed_as, sort_keys=True).encode()).hexdigest()


def _endings(name: str) -> list[str]:
    """The extensions of a name that determine how the file is parsed: file type and compression."""
    path = PurePosixPath(name.lower())
    return [word for word in (suffix_of_name(name), path.suffix) if word in SIGNIFICANT_EXTENSIONS]
