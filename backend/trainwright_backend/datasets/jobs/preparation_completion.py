"""Completing a preparation: its manifest, and a validation split cut from the tail if no document fell into one."""

import hashlib
from collections.abc import Callable
from uuid import UUID

from sqlalchemy import select, update

from trainwright.contracts.api.datasets import PreparationState
from trainwright.contracts.token_shards import MANIFEST_NAME, TOKENIZER_NAME, ShardManifest
from trainwright.prepare.token_shards import (
    ChunkShards,
    build_manifest,
    shards_of_tail,
    split_validation_tail,
)
from trainwright.prepare.tokenizer import end_of_text_id, load_tokenizer
from trainwright_backend.core.db import Database, Read, now
from trainwright_backend.core.object_store import ObjectStore
from trainwright_backend.datasets.jobs.job import JobCancelledError
from trainwright_backend.datasets.jobs.preparation_jobs import CompletePreparation
from trainwright_backend.datasets.tables import Preparation, PreparationChunk

MIN_TOKENS = 2
"""One token to predict, and one to predict it from."""


def complete_preparation(
    database: Database, store: ObjectStore, job: CompletePreparation, is_cancelled: Callable[[], bool]
) -> str | None:
    """Write the manifest.

    Returns:
        Why the preparation cannot be used, if it cannot.

    Raises:
        JobCancelledError: the job was cancelled; `Cancelled` if that is noticed while a split is cut.
    """
    with database.read() as session:
        results = _results(session, job.lease.owner_id)
    manifest = _manifest(store, job, results, is_cancelled)
    unusable = _why_unusable(manifest)
    if unusable is not None:
        return unusable
    if is_cancelled():
        raise JobCancelledError
    stored = store.write(f"{job.folder}/{MANIFEST_NAME}", manifest.model_dump_json(indent=1).encode())
    with database.write() as session:
        completed = session.change(
            update(Preparation)
            .where(*job.lease.conditions(), Preparation.state == PreparationState.WORKING)
            .values(
                state=PreparationState.READY,
                error=None,
                manifest=manifest.model_dump(mode="json"),
                train_tokens=manifest.train.tokens,
                validation_tokens=manifest.validation.tokens,
                validation_from_tail=manifest.validation_from_tail,
                manifest_digest=stored.digest,
                manifest_bytes=stored.bytes,
                stored_bytes=stored.bytes + _shard_bytes(manifest),
                documents=sum(result.documents for result in results),
                lengths=_lengths(results),
                lease=None,
                leased_until=None,
                last_activity=now(),
            )
        )
        if not completed:
            raise JobCancelledError
    return None


def _shard_bytes(manifest: ShardManifest) -> int:
    return sum(shard.bytes for split in (manifest.train, manifest.validation) for shard in split.shards)


def _results(session: Read, preparation_id: UUID) -> list[ChunkShards]:
    """The results of all chunks, in order."""
    rows = session.scalars(
        select(PreparationChunk.result)
        .where(PreparationChunk.preparation_id == preparation_id)
        .order_by(PreparationChunk.number)
        .execution_options(yield_per=100)
    )
    return [ChunkShards.model_validate(row) for row in rows]


def _manifest(
    store: ObjectStore, job: CompletePreparation, results: list[ChunkShards], is_cancelled: Callable[[], bool]
) -> ShardManifest:
    path = store.local_file(f"{job.folder}/{TOKENIZER_NAME}")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    end_of_text = end_of_text_id(load_tokenizer(path))
    manifest = build_manifest(digest, end_of_text, job.tokenizer, job.validation_fraction, results)
    with store.working_folder() as folder:
        for shard in shards_of_tail(manifest):
            (folder / shard.name).symlink_to(store.local_file(f"{job.folder}/{shard.name}"))
        manifest, written = split_validation_tail(manifest, folder, is_cancelled)
        for path in written:
            if is_cancelled():
                raise JobCancelledError
            store.put_file(f"{job.folder}/{path.name}", path)
    return manifest


def _why_unusable(manifest: ShardManifest) -> str | None:
    tokens = manifest.train.tokens + manifest.validation.tokens
    if tokens < MIN_TOKENS:
        return (
            f"The documents give {tokens} tokens, and training needs at least {MIN_TOKENS}: one to predict, and "
            "one to predict it from. Add documents."
        )
    if not manifest.train.tokens:
        return (
            "All documents fell into the validation split, so nothing is left to train on. Add documents, or lower the "
            "validation fraction."
        )
    return None


def _lengths(results: list[ChunkShards]) -> list[list[int]]:
    """The sum of the chunks' histograms, without gaps."""
    counts: dict[int, int] = {}
    for result in results:
        for bucket in result.lengths:
            counts[bucket.upto] = counts.get(bucket.upto, 0) + bucket.documents
    if not counts:
        return []
    shortest, longest = min(counts).bit_length(), max(counts).bit_length()
    return [[1 << power, counts.get(1 << power, 0)] for power in range(shortest - 1, longest)]
