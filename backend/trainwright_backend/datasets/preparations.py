"""Preparations as others see them: found or made, shown, and read file by file.

A preparation is a pure function of its input, which its digest names; two submissions that ask for the same get the
same one. The digest includes the version's id, so deleting a dataset never touches the bytes of another.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from sqlalchemy import or_, select, update
from sqlalchemy.exc import IntegrityError

from trainwright.contracts.api import Preparation as PreparationOut
from trainwright.contracts.api import PreparationState
from trainwright.contracts.run_spec import DataSpec, TokenizerSpec
from trainwright.contracts.shards import MANIFEST_NAME, TOKENIZER_NAME, ShardManifest
from trainwright_backend.core.db import Read, Write, now
from trainwright_backend.core.enqueue import enqueue_task
from trainwright_backend.core.errors import Invalid, NotFound
from trainwright_backend.core.ids import new_id, parse_id, public_id
from trainwright_backend.datasets.tables import Dataset, DatasetVersion, Preparation, PreparationSlice

PREPARE_TASK = "datasets.prepare"
"""Celery task that does the next step of the preparation whose id it gets."""

FORMAT = 2
"""Raised when the same input would give other bytes, so that old output is not taken for new."""

MESSAGES = 16
"""Messages out for one preparation at most: workers that may join in at once. Each step sends for the next one."""

SILENCE = timedelta(seconds=20)
"""Without progress for so long, messages are sent again."""


@dataclass(frozen=True)
class PreparedFile:
    """A file that a run's node fetches."""

    name: str
    bytes: int
    digest: str
    """SHA-256, in hex."""

    object_key: str


def resolve_data(session: Write, team_id: UUID, data: DataSpec) -> tuple[DataSpec, Preparation]:
    """The preparation that a submission asks for, made and set to work where there is none yet.

    Returns:
        ``data`` with its version filled in, and the preparation in whatever state it is.

    Raises:
        Invalid: the team has no such dataset or version, at `data.dataset` or `data.version`.
    """
    _hold_dataset(session, team_id, data)
    version = _version_of(session, team_id, data)
    resolved = data.model_copy(update={"version": version.number})
    preparation = find_or_make(session, team_id, version, data.tokenizer, data.validation_fraction)
    return resolved, preparation


def check_data(session: Read, team_id: UUID, data: DataSpec) -> DataSpec:
    """As `resolve_data`, for a spec that is only looked at: nothing is made.

    Raises:
        Invalid: as `resolve_data`.
    """
    return data.model_copy(update={"version": _version_of(session, team_id, data).number})


def find_or_make(
    session: Write,
    team_id: UUID,
    version: DatasetVersion,
    tokenizer: TokenizerSpec,
    validation_fraction: float,
) -> Preparation:
    """The preparation of ``version`` for these settings; a new one is put to work after the commit."""
    digest = _digest(version, tokenizer, validation_fraction)
    wanted = select(Preparation).where(Preparation.version_id == version.id, Preparation.digest == digest)
    found = session.scalar(wanted)
    if found is None:
        made = Preparation(
            id=new_id(),
            team_id=team_id,
            version_id=version.id,
            digest=digest,
            tokenizer=tokenizer.model_dump(mode="json"),
            validation_fraction=validation_fraction,
            state=PreparationState.WAITING,
        )
        try:
            with session.begin_nested():
                session.add(made)
        except IntegrityError:  # somebody else was faster
            return session.scalars(wanted).one()
        send_messages(session, made.id, 1)
        return made
    if found.state == PreparationState.FAILED and found.may_be_repeated:
        _begin_anew(session, found)
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
    """Where a file of the preparation lies in the object store."""
    return f"{object_folder(preparation.team_id, preparation.digest)}/{name}"


def object_folder(team_id: UUID, digest: str) -> str:
    """The folder of a preparation's objects."""
    return f"{team_id}/preparations/{digest}"


def preparation_files(preparation: Preparation) -> list[PreparedFile]:
    """Everything that a node needs of a ready preparation: manifest, tokenizer and shards."""
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


def show_preparation(preparation: Preparation) -> PreparationOut:
    """A preparation as people see it."""
    manifest = ShardManifest.model_validate(preparation.manifest) if preparation.manifest else None
    return PreparationOut(
        id=public_id("prep", preparation.id),
        state=PreparationState(preparation.state),
        tokenizer=TokenizerSpec.model_validate(preparation.tokenizer),
        validation_fraction=preparation.validation_fraction,
        shards_done=preparation.shards_done,
        shards_total=preparation.shards_total,
        documents=preparation.documents,
        rejected=preparation.rejected,
        train_tokens=None if manifest is None else manifest.train.tokens,
        validation_tokens=None if manifest is None else manifest.validation.tokens,
        error=preparation.error,
    )


def send_messages(session: Write, preparation_id: UUID, count: int) -> None:
    """Tell ``count`` workers, after the commit, that there is something to do."""
    for _ in range(min(count, MESSAGES)):
        enqueue_task(session, PREPARE_TASK, str(preparation_id))


def resend_stale_preparations(session: Write) -> int:
    """Send again for preparations that make no progress: a worker or the broker lost their messages.

    Returns:
        How many preparations were sent for.
    """
    stale = session.scalars(
        select(Preparation.id).where(
            Preparation.state.in_((PreparationState.WAITING, PreparationState.WORKING)),
            Preparation.touched < now() - SILENCE,
        )
    ).all()
    return sum(_resend(session, preparation_id) for preparation_id in stale)


def _resend(session: Write, preparation_id: UUID) -> bool:
    still_stale = (Preparation.id == preparation_id, Preparation.touched < now() - SILENCE)
    if not session.change(update(Preparation).where(*still_stale).values(touched=now())):
        return False
    send_messages(session, preparation_id, max(1, len(_open_slices(session, preparation_id))))
    return True


def _open_slices(session: Read, preparation_id: UUID) -> Sequence[int]:
    lapsed = or_(PreparationSlice.leased_until.is_(None), PreparationSlice.leased_until < now())
    return session.scalars(
        select(PreparationSlice.number)
        .where(PreparationSlice.preparation_id == preparation_id, PreparationSlice.done.is_(False), lapsed)
        .limit(MESSAGES)
    ).all()


def _begin_anew(session: Write, preparation: Preparation) -> None:
    """Slices that are done stay done."""
    planned = preparation.shards_total is not None
    preparation.state = PreparationState.WORKING if planned else PreparationState.WAITING
    preparation.error = None
    preparation.failures = 0
    preparation.may_be_repeated = False
    preparation.touched = now()
    session.change(
        update(PreparationSlice)
        .where(PreparationSlice.preparation_id == preparation.id, PreparationSlice.done.is_(False))
        .values(lost_leases=0, lease=None, leased_until=None)
    )
    session.flush()
    send_messages(session, preparation.id, MESSAGES if planned else 1)


def _hold_dataset(session: Write, team_id: UUID, data: DataSpec) -> None:
    """Keep the dataset, if there is one, from being deleted until the run that uses it is there to be seen."""
    held = select(Dataset.id).where(Dataset.id == _dataset_id(data), Dataset.team_id == team_id)
    session.execute(held.with_for_update(read=True))


def _dataset_id(data: DataSpec) -> UUID | None:
    try:
        return parse_id("ds", data.dataset)
    except NotFound:
        return None


def _version_of(session: Read, team_id: UUID, data: DataSpec) -> DatasetVersion:
    dataset_id = _dataset_id(data)
    dataset = None if dataset_id is None else session.get(Dataset, dataset_id)
    if dataset is None or dataset.team_id != team_id:
        message = "Your team has no dataset of this id. The datasets page shows each id."
        raise Invalid.at("data.dataset", message, data.dataset)
    versions = dataset.versions
    for version in versions:
        if data.version in (None, version.number):
            return version
    newest = versions[0].number
    raise Invalid.at("data.version", f"This dataset has versions 1 to {newest}.", data.version)


def _digest(version: DatasetVersion, tokenizer: TokenizerSpec, validation_fraction: float) -> str:
    asked = {
        "format": FORMAT,
        "version": version.id.hex,
        "content": version.digest,
        "tokenizer": {"kind": tokenizer.kind.value, "size": tokenizer.size},
        "validation_fraction": validation_fraction,
    }
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
