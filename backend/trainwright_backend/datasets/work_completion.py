"""The last step of a preparation: the manifest, and a validation split where no document fell into one."""

import hashlib
from collections.abc import Callable
from uuid import UUID

from sqlalchemy import select, update

from trainwright.contracts.api.datasets import PreparationState
from trainwright.contracts.shards import MANIFEST_NAME, TOKENIZER_NAME, ShardManifest
from trainwright.prepare.shards import SliceResult, build_manifest, cut_validation_tail
from trainwright.prepare.tokenizer import end_of_text_id, load_tokenizer
from trainwright_backend.core.db import Database, Read, now
from trainwright_backend.core.storage import LocalStore
from trainwright_backend.datasets.steps import Unwanted
from trainwright_backend.datasets.tables import Preparation, PreparationSlice
from trainwright_backend.datasets.work_preparations import Complete

LEAST_TOKENS = 2
"""One to predict, and one to predict it from."""


def complete(
    database: Database, store: LocalStore, step: Complete, is_unwanted: Callable[[], bool]
) -> str | None:
    """Write the manifest.

    Returns:
        Why the preparation cannot be used, when it cannot.

    Raises:
        Unwanted: nobody wants it any more; `Cancelled` where that is noticed while a split is cut.
    """
    with database.read() as session:
        results = _results(session, step.lease.owner_id)
    manifest = _manifest(store, step, results, is_unwanted)
    why = _why_unusable(manifest)
    if why is not None:
        return why
    if is_unwanted():
        raise Unwanted
    stored = store.write(f"{step.folder}/{MANIFEST_NAME}", manifest.model_dump_json(indent=1).encode())
    with database.write() as session:
        completed = session.change(
            update(Preparation)
            .where(*step.lease.conditions(), Preparation.state == PreparationState.WORKING)
            .values(
                state=PreparationState.READY,
                error=None,
                manifest=manifest.model_dump(mode="json"),
                train_tokens=manifest.train.tokens,
                validation_tokens=manifest.validation.tokens,
                validation_from_tail=manifest.validation_from_tail,
                manifest_digest=stored.digest,
                manifest_bytes=stored.bytes,
                documents=sum(result.documents for result in results),
                lengths=_lengths(results),
                lease=None,
                leased_until=None,
                touched=now(),
            )
        )
        if not completed:
            raise Unwanted
    return None


def _results(session: Read, preparation_id: UUID) -> list[SliceResult]:
    """What all slices gave, in order."""
    rows = session.scalars(
        select(PreparationSlice.result)
        .where(PreparationSlice.preparation_id == preparation_id)
        .order_by(PreparationSlice.number)
        .execution_options(yield_per=100)
    )
    return [SliceResult.model_validate(row) for row in rows]


def _manifest(
    store: LocalStore, step: Complete, results: list[SliceResult], is_unwanted: Callable[[], bool]
) -> ShardManifest:
    path = store.path_of(f"{step.folder}/{TOKENIZER_NAME}")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    end_of_text = end_of_text_id(load_tokenizer(path))
    manifest = build_manifest(digest, end_of_text, step.tokenizer, step.validation_fraction, results)
    with store.working_folder() as folder:
        for shard in manifest.train.shards:
            (folder / shard.name).symlink_to(store.path_of(f"{step.folder}/{shard.name}"))
        manifest, written = cut_validation_tail(manifest, folder, is_unwanted)
        for path in written:
            if is_unwanted():
                raise Unwanted
            store.put_file(f"{step.folder}/{path.name}", path)
    return manifest


def _why_unusable(manifest: ShardManifest) -> str | None:
    tokens = manifest.train.tokens + manifest.validation.tokens
    if tokens < LEAST_TOKENS:
        return (
            f"The documents give {tokens} tokens in all, and training needs at least {LEAST_TOKENS}: one to predict, and "
            "one to predict it from. Add documents."
        )
    if not manifest.train.tokens:
        return (
            "All documents fell into the validation split, so nothing is left to train on. Add documents, or lower the "
            "validation fraction."
        )
    return None


def _lengths(results: list[SliceResult]) -> list[list[int]]:
    """The slices' histograms added up, without gaps."""
    counts: dict[int, int] = {}
    for result in results:
        for one in result.lengths:
            counts[one.upto] = counts.get(one.upto, 0) + one.documents
    if not counts:
        return []
    least, most = min(counts).bit_length(), max(counts).bit_length()
    return [[1 << place, counts.get(1 << place, 0)] for place in range(least - 1, most)]
