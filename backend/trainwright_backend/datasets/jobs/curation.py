"""Curating a version: applying its curation to its documents, once all its files are parsed.

The job writes a mask of kept documents per chunk to the object store, and the version's chunks and statistics to rows.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from sqlalchemy import select, update

from trainwright.contracts.api.datasets import PreparationState, Statistics, VersionState
from trainwright.contracts.curation import CurationSpec
from trainwright_backend.core.db import Database, Read, Write, now
from trainwright_backend.core.object_store import ObjectStore
from trainwright_backend.datasets.chunks import (
    mask_key,
    version_folder,
)
from trainwright_backend.datasets.curation_counts import Source, curate_sources, list_sources
from trainwright_backend.datasets.job_queue import PENDING_VERSION, JobKind, send_job
from trainwright_backend.datasets.jobs.job import Job, JobCancelledError
from trainwright_backend.datasets.jobs.leases import MAX_FAILURES, is_free, take
from trainwright_backend.datasets.jobs.outcomes import mark_version_failed
from trainwright_backend.datasets.parsed_files import ensure_parsed
from trainwright_backend.datasets.tables import (
    DatasetVersion,
    Preparation,
    RejectedLine,
    VersionChunk,
)

QUOTED_REJECTED = 3


@dataclass(frozen=True)
class CurateVersion(Job):
    """Apply a version's curation."""

    team_id: UUID
    curation: CurationSpec
    sources: list[Source]
    rejected: int


@dataclass
class Masks:
    """Writes masks as they are computed, and counts the documents that each keeps."""

    store: ObjectStore
    job: CurateVersion
    kept_documents: dict[int, int] = field(default_factory=dict)

    def __call__(self, position: int, mask: bytes) -> None:
        self.store.write(mask_key(self.job.team_id, self.job.lease.owner_id, position), mask)
        self.kept_documents[position] = mask.count(0)


def take_curation_job(session: Write, version_id: UUID) -> CurateVersion | None:
    """Take the lease of a version whose files are parsed. Files that are not parsed yet are queued."""
    version = session.get(DatasetVersion, version_id, with_for_update=True)
    if version is None or version.state not in PENDING_VERSION or not is_free(version):
        return None
    team_id, curation = version.dataset.team_id, CurationSpec.model_validate(version.curation)
    ensure_parsed(session, team_id, version, curation.read)
    parsed_files = [(file.name, file.parsed_file) for file in version.files if file.parsed_file is not None]
    for name, parsed_file in parsed_files:
        if parsed_file.state == VersionState.FAILED:
            error = parsed_file.error or ""
            mark_version_failed(session, version, error if name in error else f"{name}: {error}")
            return None
    if any(parsed_file.state != VersionState.READY for _, parsed_file in parsed_files):
        return None
    rejected = sum(parsed_file.rejected for _, parsed_file in parsed_files)
    documents = sum(parsed_file.documents for _, parsed_file in parsed_files)
    unusable = None if version.sources else why_unusable(session, version, documents, rejected, curation)
    if unusable is None and version.lease is not None:
        version.failures += 1
        if version.failures >= MAX_FAILURES:
            unusable = _workers_died()
    if unusable is not None:
        mark_version_failed(session, version, unusable)
        return None
    version.state = VersionState.READING
    lease = take(version)
    session.flush()
    return CurateVersion(
        lease=lease,
        folder=version_folder(team_id, version.id),
        team_id=team_id,
        curation=curation,
        sources=list_sources(session, team_id, version),
        rejected=rejected,
    )


def curate_version(
    database: Database,
    store: ObjectStore,
    job: CurateVersion,
    is_cancelled: Callable[[], bool],
    give_way: Callable[[], bool],
) -> str | None:
    """Write the masks, then the version's chunks and statistics.

    Returns:
        Why the version cannot be used, if no document is left.

    Raises:
        JobCancelledError: the job was cancelled.
    """

    def between_chunks() -> None:
        if is_cancelled():
            raise JobCancelledError
        assert not give_way(), "a curation does not stop halfway"

    masks = Masks(store, job)
    statistics = curate_sources(
        store, job.sources, job.curation, job.rejected, masks, between_chunks=between_chunks
    )
    if not statistics.kept:
        return _nothing_kept(statistics)
    with database.write() as session:
        done = session.change(
            update(DatasetVersion)
            .where(*job.lease.conditions())
            .values(
                state=VersionState.READY,
                statistics=statistics.model_dump(mode="json", exclude={"counted_fraction"}),
                failures=0,
                lease=None,
                leased_until=None,
                last_activity=now(),
            )
        )
        if not done:
            raise JobCancelledError
        _add_chunks(session, job, masks.kept_documents)
        waiting = (
            Preparation.version_id == job.lease.owner_id,
            Preparation.state == PreparationState.WAITING,
        )
        for preparation_id in session.scalars(select(Preparation.id).where(*waiting)):
            send_job(session, JobKind.PREPARE, preparation_id)
    return None


def why_unusable(
    session: Read, version: DatasetVersion, documents: int, rejected: int, curation: CurationSpec
) -> str | None:
    """Why the parsed documents cannot be used, if they cannot."""
    if not documents and not rejected:
        return "No usable document was found: the files contain only white space. Upload files with text."
    share = rejected / (documents + rejected)
    if documents and share <= curation.rejected_limit:
        return None
    first = "; ".join(_first_rejected(session, version))
    if not documents:
        return (
            f"No usable document was found: all {rejected:,} rows were rejected. First: {first}. Fix the files, or "
            "choose another field to read."
        )
    return (
        f"{rejected:,} of {documents + rejected:,} documents ({100 * share:.3g} %) could not be read, more than the "
        f"limit of {100 * curation.rejected_limit:g} %. First: {first}. Fix the files, or create a version "
        "with a higher “Maximum unreadable documents” (`curation.rejected_limit` in the API)."
    )


def _first_rejected(session: Read, version: DatasetVersion) -> list[str]:
    found: list[str] = []
    for file in version.files:
        rows = session.scalars(
            select(RejectedLine)
            .where(RejectedLine.parsed_file_id == file.parsed_file_id)
            .order_by(RejectedLine.position)
            .limit(QUOTED_REJECTED - len(found))
        )
        found += [f"line {row.line:,} of {file.name} {row.reason}" for row in rows]
        if len(found) >= QUOTED_REJECTED:
            break
    return found


def _nothing_kept(statistics: Statistics) -> str:
    dropped = ", ".join(f"{name} {count:,}" for name, count in statistics.dropped.items() if count)
    return (
        f"The curation keeps none of the {statistics.documents:,} documents. It drops: {dropped}. Create a version "
        "with a less strict curation."
    )


def _add_chunks(session: Write, job: CurateVersion, kept_documents: dict[int, int]) -> None:
    first_document = 0
    for number, chunk in enumerate(chunk for source in job.sources for chunk in source.chunks):
        session.add(
            VersionChunk(
                version_id=job.lease.owner_id,
                number=number,
                parsed_file_id=chunk.parsed_file_id,
                chunk_number=chunk.number,
                first_document=first_document,
                documents=chunk.documents,
                kept_documents=kept_documents[number],
            )
        )
        first_document += chunk.documents


def _workers_died() -> str:
    return (
        f"{MAX_FAILURES} workers in a row died while applying the curation. Check whether their machine runs "
        "out of memory, then create the version again with the same files."
    )
