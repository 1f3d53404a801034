"""Preparations: finding or creating them, restarting, cancelling and showing them, and listing their files.

A preparation is a pure function of its input, which its digest identifies; two submissions with the same input share
one. The digest includes the version's id, so deleting a dataset never affects the objects of another. `data_resolution`
determines the preparation of a submission, and `jobs.preparation_jobs` does the work.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError

from trainwright.contracts.api.datasets import HistogramBin, PreparationState, VersionState
from trainwright.contracts.api.datasets import Preparation as PreparationOut
from trainwright.contracts.data_spec import TokenizerSpec
from trainwright.contracts.token_shards import MANIFEST_NAME, TOKENIZER_NAME, ShardManifest
from trainwright_backend.core.db import Read, Write, now
from trainwright_backend.core.errors import Conflict, NotFound
from trainwright_backend.core.ids import new_id, parse_id, public_id, unknown
from trainwright_backend.datasets.job_queue import MAX_MESSAGES, PENDING_PREPARATION, JobKind, send_job
from trainwright_backend.datasets.tables import Dataset, DatasetVersion, Preparation, PreparationChunk

FORMAT = 3
"""Increased when the same input would give different bytes, so that old output is not reused."""

PREPARATION_USERS: list[Callable[[Read, UUID, Sequence[UUID]], list[str]]] = []
"""Functions of higher features that list what needs preparations: (session, team id, preparation ids) → names.
A refused cancel or delete quotes these names."""


@dataclass(frozen=True)
class PreparedFile:
    """A file that a run's node fetches."""

    name: str
    bytes: int
    digest: str
    """SHA-256, in hex."""

    object_key: str


def find_or_create(
    session: Write,
    team_id: UUID,
    version: DatasetVersion,
    tokenizer: TokenizerSpec,
    validation_fraction: float,
    tokenizer_digest: str | None = None,
) -> Preparation:
    """The preparation of ``version`` for these settings. One that is new or was cancelled is queued.

    Args:
        tokenizer_digest: of the file, for a tokenizer that is not trained on the data.
    """
    found = find_preparation(session, version, tokenizer, validation_fraction, tokenizer_digest)
    if found is None:
        created = Preparation(
            id=new_id(),
            team_id=team_id,
            version_id=version.id,
            digest=preparation_digest(version, tokenizer, validation_fraction, tokenizer_digest),
            tokenizer=tokenizer.model_dump(mode="json"),
            validation_fraction=validation_fraction,
            state=PreparationState.WAITING,
            lengths=[],
        )
        try:
            with session.begin_nested():
                session.add(created)
        except IntegrityError:  # another transaction created it first
            found = find_preparation(session, version, tokenizer, validation_fraction, tokenizer_digest)
            assert found is not None, "the row that conflicted exists"
            return found
        _send(session, version, created, 1)
        return created
    can_retry = found.state == PreparationState.FAILED and found.retryable
    if can_retry or found.state == PreparationState.CANCELLED:
        _restart(session, version, found)
    return found


def find_preparation(
    session: Read,
    version: DatasetVersion,
    tokenizer: TokenizerSpec,
    validation_fraction: float,
    tokenizer_digest: str | None = None,
) -> Preparation | None:
    """As `find_or_create`, but creates nothing."""
    digest = preparation_digest(version, tokenizer, validation_fraction, tokenizer_digest)
    return session.scalar(
        select(Preparation).where(Preparation.version_id == version.id, Preparation.digest == digest)
    )


def preparation_digest(
    version: DatasetVersion,
    tokenizer: TokenizerSpec,
    validation_fraction: float,
    tokenizer_digest: str | None,
) -> str:
    """The digest of everything that determines a preparation's bytes."""
    kind = "file" if tokenizer.has_source else tokenizer.kind.value
    determinants = {
        "format": FORMAT,
        "version": version.id.hex,
        "content": version.digest,
        "tokenizer": {"kind": kind, "size": tokenizer.size, "digest": tokenizer_digest},
        "validation_fraction": validation_fraction,
    }
    return hashlib.sha256(json.dumps(determinants, sort_keys=True).encode()).hexdigest()


def cancel_preparation(session: Write, team_id: UUID, dataset: Dataset, preparation: str) -> Preparation:
    """Cancel a preparation of ``dataset``, which is locked. Finished chunks are kept for the next request.

    Raises:
        NotFound: the dataset has none of this id.
        Conflict: runs wait for it, or it is ready or failed.
    """
    found = session.get(Preparation, parse_id("prep", preparation), with_for_update=True)
    if found is None or found.version.dataset_id != dataset.id:
        raise unknown("prep", preparation)
    if found.state == PreparationState.CANCELLED:
        return found
    if found.state not in PENDING_PREPARATION:
        raise Conflict("preparation_ended", f"This preparation is {found.state}: there is nothing to cancel.")
    waiting = [name for names_of in PREPARATION_USERS for name in names_of(session, team_id, [found.id])]
    if waiting:
        raise Conflict(
            "preparation_in_use",
            f"Runs wait for this preparation: {', '.join(waiting[:10])}{' and more' if len(waiting) > 10 else ''}. "
            "Cancel them first.",
            extensions={"runs": waiting},
        )
    found.state = PreparationState.CANCELLED
    found.error = None
    session.flush()
    return found


def get_preparation(session: Read, team_id: UUID, preparation_id: UUID) -> Preparation:
    """A preparation of the team.

    Raises:
        NotFound: there is none of this id.
    """
    found = session.get(Preparation, preparation_id)
    if found is None or found.team_id != team_id:
        raise NotFound("There is no such preparation.")
    return found


def object_key(preparation: Preparation, name: str) -> str:
    """Object key of one of the preparation's files."""
    return f"{object_folder(preparation.team_id, preparation.digest)}/{name}"


def object_folder(team_id: UUID, digest: str) -> str:
    """The folder of a preparation's objects."""
    return f"{team_id}/preparations/{digest}"


def preparation_files(preparation: Preparation) -> list[PreparedFile]:
    """The files that a node needs of a ready preparation: manifest, tokenizer and shards."""
    assert preparation.state == PreparationState.READY, "only a ready preparation has files"
    assert preparation.manifest_bytes is not None and preparation.manifest_digest is not None
    assert preparation.tokenizer_bytes is not None
    manifest = ShardManifest.model_validate(preparation.manifest)
    named = [
        (MANIFEST_NAME, preparation.manifest_bytes, preparation.manifest_digest),
        (TOKENIZER_NAME, preparation.tokenizer_bytes, manifest.tokenizer_digest),
        *(
            (shard.name, shard.bytes, shard.digest)
            for split in (manifest.train, manifest.validation)
            for shard in split.shards
        ),
    ]
    return [PreparedFile(name, count, digest, object_key(preparation, name)) for name, count, digest in named]


def why_too_short(preparation: Preparation, sequence_tokens: int) -> str | None:
    """The error if a ready preparation cannot fill one sequence of a run."""
    if preparation.state != PreparationState.READY:
        return None
    tokens = preparation.train_tokens
    assert tokens is not None, "a ready preparation knows its tokens"
    if tokens > sequence_tokens:
        return None
    return (
        f"The dataset has {tokens:,} training tokens, and one sequence of {sequence_tokens:,} needs "
        f"{sequence_tokens + 1:,}: its tokens and the one after them. Lower batch.sequence_tokens, or add documents."
    )


def show_preparation(preparation: Preparation, rejected: int | None = None) -> PreparationOut:
    """A preparation as the API returns it.

    Args:
        rejected: rejected documents of its version, if known.
    """
    return PreparationOut(
        id=public_id("prep", preparation.id),
        state=PreparationState(preparation.state),
        tokenizer=TokenizerSpec.model_validate(preparation.tokenizer),
        validation_fraction=preparation.validation_fraction,
        shards_done=preparation.shards_done,
        shards_total=preparation.shards_total,
        tokens_done=preparation.tokens_done,
        documents=preparation.documents,
        rejected=rejected,
        train_tokens=preparation.train_tokens,
        validation_tokens=preparation.validation_tokens,
        validation_from_tail=preparation.validation_from_tail,
        lengths=[HistogramBin(upto=upto, documents=documents) for upto, documents in preparation.lengths],
        error=preparation.error,
    )


def _restart(session: Write, version: DatasetVersion, preparation: Preparation) -> None:
    """Finished chunks are kept, and a worker that has not noticed the end continues with its chunk."""
    planned = preparation.shards_total is not None
    preparation.state = PreparationState.WORKING if planned else PreparationState.WAITING
    preparation.error = None
    preparation.failures = 0
    preparation.retryable = False
    preparation.last_activity = now()
    session.change(
        update(PreparationChunk)
        .where(PreparationChunk.preparation_id == preparation.id, PreparationChunk.done.is_(False))
        .values(expired_leases=0)
    )
    session.flush()
    _send(session, version, preparation, MAX_MESSAGES if planned else 1)


def _send(session: Write, version: DatasetVersion, preparation: Preparation, count: int) -> None:
    """Send messages if the version is ready; otherwise its curation job sends them."""
    if version.state == VersionState.READY:
        send_job(session, JobKind.PREPARE, preparation.id, count)
