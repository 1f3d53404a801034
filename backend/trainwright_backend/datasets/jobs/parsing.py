"""Parsing a stored file: reading it and splitting it into chunks of documents.

One worker at a time runs this job, and continues where the last one stopped: each chunk is stored and committed
separately, together with the position at which the next one starts.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from sqlalchemy import func, select, update

from trainwright.contracts.api.datasets import VersionState
from trainwright.contracts.curation import FileFormat, ReadSpec
from trainwright.contracts.file_types import FileType
from trainwright.prepare.chunks import ChunkInfo, chunk_name, write_chunks
from trainwright.prepare.documents import Rejected, Source
from trainwright.prepare.file_reader import columns_of, resolve_field
from trainwright.prepare.rows import Position
from trainwright.prepare.sniff import sniff
from trainwright_backend.core.db import Database, Write, now, storable
from trainwright_backend.core.object_store import ObjectStore
from trainwright_backend.datasets.job_queue import PENDING_VERSION, JobKind, send_job
from trainwright_backend.datasets.jobs.job import Job, JobCancelledError
from trainwright_backend.datasets.jobs.leases import MAX_EXPIRED_LEASES, is_free, release, take
from trainwright_backend.datasets.jobs.outcomes import mark_failed, send_curation_jobs
from trainwright_backend.datasets.parsed_files import parsed_file_folder
from trainwright_backend.datasets.tables import (
    MAX_REJECTED_LISTED,
    DatasetFile,
    DatasetVersion,
    FileChunk,
    ParsedFile,
    RejectedLine,
)
from trainwright_backend.uploads.tables import StoredFile

MAX_REASON_CHARACTERS = 255


@dataclass(frozen=True)
class ParseFile(Job):
    """Parse a stored file from where the last job stopped."""

    name: str
    """One of the names that it was uploaded under. The extensions determine how it is parsed."""

    object_key: str
    bytes: int
    read: ReadSpec
    position: Position | None
    chunks: int
    """Chunks that are written already."""


def take_parse_job(session: Write, parsed_file_id: UUID) -> ParseFile | None:
    """Take the lease of a parsed file that no worker parses."""
    parsed_file = session.get(ParsedFile, parsed_file_id, with_for_update=True)
    if parsed_file is None or parsed_file.state not in PENDING_VERSION or not is_free(parsed_file):
        return None
    name = session.scalar(
        select(DatasetFile.name).where(DatasetFile.parsed_file_id == parsed_file_id).limit(1)
    )
    if name is None:
        return None
    if parsed_file.lease is not None:
        parsed_file.expired_leases += 1
        if parsed_file.expired_leases >= MAX_EXPIRED_LEASES:
            mark_failed(session, parsed_file, _workers_died(parsed_file, name), retryable=True)
            return None
    parsed_file.state = VersionState.READING
    lease = take(parsed_file)
    session.flush()
    _mark_as_reading(session, parsed_file)
    stored = session.get_one(StoredFile, parsed_file.stored_file_id)
    return ParseFile(
        lease=lease,
        folder=parsed_file_folder(parsed_file.team_id, parsed_file.id),
        name=name,
        object_key=stored.object_key,
        bytes=stored.bytes,
        read=ReadSpec.model_validate(parsed_file.read),
        position=None if parsed_file.position is None else Position.model_validate(parsed_file.position),
        chunks=_count_chunks(session, parsed_file.id),
    )


def parse_file(
    database: Database,
    store: ObjectStore,
    job: ParseFile,
    is_cancelled: Callable[[], bool],
    give_way: Callable[[], bool],
) -> None:
    """Write the missing chunks, or as many as there is time for.

    Raises:
        UnusableDataError: the file cannot be parsed.
        JobCancelledError: the job was cancelled.
    """
    with store.working_folder() as folder:
        source = Source(job.name, store.local_file(job.object_key), folder)
        sniffed = sniff(source)
        field = None
        if sniffed.format is not FileFormat.TEXT:
            field = resolve_field(columns_of(source, sniffed), job.read.field)
        read = job.read.model_copy(update={"field": field})
        _record_format(database, job, sniffed, read)
        for chunk in write_chunks(source, sniffed, read, folder, job.position, job.chunks):
            if is_cancelled():
                raise JobCancelledError
            if chunk.documents:
                _store_chunk(store, job, chunk, folder)
            _record_chunk(database, job, chunk)
            if chunk.next_position is not None and give_way():
                return _continue_later(database, job)
    with database.write() as session:  # for a file without any chunk
        _complete(session, job)


def _continue_later(database: Database, job: ParseFile) -> None:
    with database.write() as session:
        if release(session, job.lease):
            send_job(session, JobKind.PARSE, job.lease.owner_id)


def _record_format(database: Database, job: ParseFile, sniffed: FileType, read: ReadSpec) -> None:
    found = {
        "format": sniffed.format.value,
        "compression": sniffed.compression.value,
        "read": read.model_dump(mode="json"),
    }
    with database.write() as session:
        if not session.change(update(ParsedFile).where(*job.lease.conditions()).values(found)):
            raise JobCancelledError


def _store_chunk(store: ObjectStore, job: ParseFile, chunk: ChunkInfo, folder: Path) -> None:
    path = folder / chunk_name(chunk.number)
    stored = store.put_file(f"{job.folder}/{path.name}", path)
    if stored.digest != chunk.digest:
        raise OSError(f"{path.name} was read back with other content than was written")
    path.unlink()


def _record_chunk(database: Database, job: ParseFile, chunk: ChunkInfo) -> None:
    """Record the chunk, its rejected lines, and where the next chunk starts or that this is the last, in one transaction."""
    with database.write() as session:
        position = None if chunk.next_position is None else chunk.next_position.model_dump(mode="json")
        recorded = session.change(
            update(ParsedFile)
            .where(*job.lease.conditions())
            .values(
                documents=ParsedFile.documents + chunk.documents,
                characters=ParsedFile.characters + chunk.characters,
                rejected=ParsedFile.rejected + chunk.rejected_count,
                read_bytes=min(chunk.read_bytes, job.bytes),
                position=position,
                expired_leases=0,
                failures=0,
                last_activity=now(),
            )
        )
        if not recorded:
            raise JobCancelledError
        if chunk.documents:
            session.add(
                FileChunk(
                    parsed_file_id=job.lease.owner_id,
                    number=chunk.number,
                    documents=chunk.documents,
                    characters=chunk.characters,
                    bytes=chunk.bytes,
                    digest=chunk.digest,
                )
            )
        _list_rejected(session, job.lease.owner_id, chunk.rejected)
        if chunk.next_position is None:
            _complete(session, job)


def _list_rejected(session: Write, parsed_file_id: UUID, rows: list[Rejected]) -> None:
    listed = session.scalar(
        select(func.count()).select_from(RejectedLine).where(RejectedLine.parsed_file_id == parsed_file_id)
    )
    first = listed or 0
    session.add_all(
        RejectedLine(
            parsed_file_id=parsed_file_id,
            position=position,
            line=row.line,
            reason=storable(row.reason)[:MAX_REASON_CHARACTERS],
        )
        for position, row in enumerate(rows[: MAX_REJECTED_LISTED - first], start=first)
    )


def _complete(session: Write, job: ParseFile) -> None:
    done = session.change(
        update(ParsedFile)
        .where(*job.lease.conditions())
        .values(
            state=VersionState.READY,
            read_bytes=job.bytes,
            lease=None,
            leased_until=None,
            failures=0,
            last_activity=now(),
        )
    )
    if done:
        send_curation_jobs(session, session.get_one(ParsedFile, job.lease.owner_id))


def _mark_as_reading(session: Write, parsed_file: ParsedFile) -> None:
    """Mark the versions that wait for this file as being read."""
    users = select(DatasetFile.version_id).where(DatasetFile.parsed_file_id == parsed_file.id)
    waiting = (DatasetVersion.id.in_(users), DatasetVersion.state == VersionState.WAITING)
    session.change(update(DatasetVersion).where(*waiting).values(state=VersionState.READING))


def _count_chunks(session: Write, parsed_file_id: UUID) -> int:
    count = select(func.count()).select_from(FileChunk).where(FileChunk.parsed_file_id == parsed_file_id)
    return session.scalar(count) or 0


def _workers_died(parsed_file: ParsedFile, name: str) -> str:
    return (
        f"{MAX_EXPIRED_LEASES} workers in a row died while reading {name}, after {parsed_file.documents:,} documents. Check whether "
        "their machine runs out of memory, then create the version again with the same files."
    )
