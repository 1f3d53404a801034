"""The jobs of a preparation: plan it, tokenize its chunks, complete it.

One worker runs one job. Repeating a job gives the same bytes, so a killed worker costs only its job.
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import or_, select

from trainwright.contracts.api.datasets import PreparationState, VersionState
from trainwright.contracts.data_spec import TokenizerSpec
from trainwright_backend.core.db import Write, now
from trainwright_backend.datasets.chunks import list_version_chunks, mask_key
from trainwright_backend.datasets.data_resolution import tokenizer_file
from trainwright_backend.datasets.job_queue import PENDING_PREPARATION
from trainwright_backend.datasets.jobs.job import Job
from trainwright_backend.datasets.jobs.leases import (
    MAX_EXPIRED_LEASES,
    MAX_FAILURES,
    Lease,
    is_free,
    take,
    take_chunk,
)
from trainwright_backend.datasets.jobs.outcomes import mark_failed
from trainwright_backend.datasets.parsed_files import chunk_key
from trainwright_backend.datasets.preparations import object_folder
from trainwright_backend.datasets.tables import Preparation, PreparationChunk, VersionChunk


@dataclass(frozen=True)
class ChunkToTokenize:
    """A chunk of the version that has documents to keep."""

    number: int
    """Within the version. Shards are named by it."""

    chunk_key: str
    mask_key: str
    kept_documents: int


@dataclass(frozen=True)
class PreparationJob(Job):
    """What every job of a preparation needs."""

    tokenizer: TokenizerSpec
    validation_fraction: float


@dataclass(frozen=True)
class PlanPreparation(PreparationJob):
    """Train or copy the tokenizer, and create the rows of the chunks."""

    chunks: list[ChunkToTokenize]
    tokenizer_key: str | None
    """Object key of the tokenizer to copy; None if there is none to copy, or it was deleted."""


@dataclass(frozen=True)
class TokenizeChunk(PreparationJob):
    """Tokenize one chunk into shards."""

    chunk: ChunkToTokenize


@dataclass(frozen=True)
class CompletePreparation(PreparationJob):
    """Write the manifest."""


def take_preparation_job(session: Write, preparation_id: UUID) -> PreparationJob | None:
    """Take the lease of the next job that no worker runs."""
    preparation = session.get(Preparation, preparation_id, with_for_update=True)
    if preparation is None or preparation.state not in PENDING_PREPARATION:
        return None
    if preparation.version.state == VersionState.FAILED:  # it failed while the preparation was running
        mark_failed(session, preparation, preparation.version.error or "", retryable=False)
        return None
    if preparation.version.state != VersionState.READY:
        return None
    if preparation.shards_total is None:
        return _take_plan(session, preparation)
    tokenize_job = _take_chunk(session, preparation)
    if tokenize_job is not None:
        return tokenize_job
    if preparation.shards_done == preparation.shards_total and preparation.state == PreparationState.WORKING:
        lease = _take_preparation(session, preparation)
        return None if lease is None else CompletePreparation(**_job_fields(preparation, lease))
    return None


def _take_plan(session: Write, preparation: Preparation) -> PlanPreparation | None:
    lease = _take_preparation(session, preparation)
    if lease is None:
        return None
    spec = TokenizerSpec.model_validate(preparation.tokenizer)
    file = tokenizer_file(session, preparation) if spec.has_source else None
    return PlanPreparation(
        **_job_fields(preparation, lease),
        chunks=[
            _chunk_to_tokenize(preparation, row)
            for row in list_version_chunks(session, preparation.version_id)
            if row.kept_documents
        ],
        tokenizer_key=None if file is None else file.object_key,
    )


def _take_preparation(session: Write, preparation: Preparation) -> Lease | None:
    if not is_free(preparation):
        return None
    if preparation.lease is not None:
        preparation.failures += 1
        if preparation.failures >= MAX_FAILURES:
            mark_failed(session, preparation, _workers_died("this preparation"), retryable=True)
            return None
    lease = take(preparation)
    session.flush()
    return lease


def _take_chunk(session: Write, preparation: Preparation) -> TokenizeChunk | None:
    free = or_(PreparationChunk.lease.is_(None), PreparationChunk.leased_until < now())
    row = session.scalar(
        select(PreparationChunk)
        .where(PreparationChunk.preparation_id == preparation.id, PreparationChunk.done.is_(False), free)
        .order_by(PreparationChunk.number)
        .limit(1)
        .with_for_update(skip_locked=True)
    )
    if row is None:
        return None
    chunk = session.get_one(VersionChunk, (preparation.version_id, row.number))
    if row.lease is not None:
        row.expired_leases += 1
        if row.expired_leases >= MAX_EXPIRED_LEASES:
            first = f"documents {chunk.first_document:,} to {chunk.first_document + chunk.documents - 1:,}"
            mark_failed(session, preparation, _workers_died(first), retryable=True)
            return None
    lease = take_chunk(row)
    preparation.last_activity = now()
    session.flush()
    return TokenizeChunk(**_job_fields(preparation, lease), chunk=_chunk_to_tokenize(preparation, chunk))


def _workers_died(what: str) -> str:
    return (
        f"{MAX_EXPIRED_LEASES} workers in a row died while processing {what}. Check whether their machine runs out "
        "of memory, then request the preparation again, or submit a run, to continue."
    )


def _job_fields(preparation: Preparation, lease: Lease) -> dict[str, Any]:
    return {
        "lease": lease,
        "folder": object_folder(preparation.team_id, preparation.digest),
        "tokenizer": TokenizerSpec.model_validate(preparation.tokenizer),
        "validation_fraction": preparation.validation_fraction,
    }


def _chunk_to_tokenize(preparation: Preparation, row: VersionChunk) -> ChunkToTokenize:
    return ChunkToTokenize(
        number=row.number,
        chunk_key=chunk_key(preparation.team_id, row.parsed_file_id, row.chunk_number),
        mask_key=mask_key(preparation.team_id, preparation.version_id, row.number),
        kept_documents=row.kept_documents,
    )
