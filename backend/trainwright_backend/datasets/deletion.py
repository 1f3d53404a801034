"""Deleting datasets and versions, unless something still needs them; their bytes follow.

A run that has ended needs its data no more: its numbers, logs and checkpoints stay, and it no longer says what it was
prepared from. One that has not ended may be tried again, and needs it.

Readings and stored files that several versions share go with the last of them.
"""

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import delete, select

from trainwright.contracts.api.datasets import PreparationState
from trainwright.contracts.data_spec import TokenizerKind, TokenizerSpec
from trainwright_backend.core.db import Read, Write
from trainwright_backend.core.doomed import doom
from trainwright_backend.core.errors import Conflict, NotFound
from trainwright_backend.core.ids import public_id
from trainwright_backend.datasets.pieces import version_folder
from trainwright_backend.datasets.preparations import PREPARATION_USERS, object_folder
from trainwright_backend.datasets.readings import drop_unused_readings
from trainwright_backend.datasets.recipes import which_versions
from trainwright_backend.datasets.service import lock_dataset
from trainwright_backend.datasets.tables import (
    Dataset,
    DatasetFile,
    DatasetVersion,
    MixedVersion,
    Preparation,
)
from trainwright_backend.teams.storage import lock_storage
from trainwright_backend.uploads.service import drop_unused


def delete_dataset(session: Write, team_id: UUID, dataset: str) -> None:
    """Delete a dataset with its versions and preparations.

    Raises:
        Conflict: runs that have not ended, mixtures or preparations need it; the error names them.
    """
    row = lock_dataset(session, team_id, dataset)
    _refuse_if_used(session, team_id, "dataset", row.versions)
    _refuse_if_tokenizer_is_wanted(session, team_id, row, row.versions)
    _delete(session, team_id, row, row.versions)


def delete_version(session: Write, team_id: UUID, dataset: str, number: int) -> None:
    """Delete one version of a dataset that has more.

    Raises:
        NotFound: there is no such version.
        Conflict: it is the only one; or as `delete_dataset`.
    """
    row = lock_dataset(session, team_id, dataset)
    version = next((version for version in row.versions if version.number == number), None)
    if version is None:
        raise NotFound(f"There is no version {number}. {which_versions(row)}")
    if len(row.versions) == 1:
        raise Conflict("last_version", "This is the dataset's only version. Delete the dataset instead.")
    _refuse_if_used(session, team_id, "version", [version])
    _refuse_if_tokenizer_is_wanted(session, team_id, row, [version])
    _delete(session, team_id, version, [version])


def list_users(names: Sequence[str]) -> str:
    """The first names of those who use something."""
    return f"{', '.join(names[:10])}{' and more' if len(names) > 10 else ''}"


def _refuse_if_used(session: Read, team_id: UUID, what: str, versions: Sequence[DatasetVersion]) -> None:
    ids = [version.id for version in versions]
    preparations = session.scalars(select(Preparation.id).where(Preparation.version_id.in_(ids))).all()
    runs = [name for names_of in PREPARATION_USERS for name in names_of(session, team_id, preparations)]
    mixtures = _mixtures_of(session, ids)
    if not runs and not mixtures:
        return
    sentences = []
    if runs:
        sentences.append(f"Runs that have not ended use this {what}: {list_users(runs)}. Cancel them first.")
    if mixtures:
        sentences.append(f"It is mixed into: {list_users(mixtures)}. Delete them first.")
    raise Conflict(
        f"{what}_in_use",
        " ".join(sentences),
        extensions={"runs": runs, "mixtures": mixtures},
    )


def _mixtures_of(session: Read, version_ids: Sequence[UUID]) -> list[str]:
    rows = session.execute(
        select(Dataset.name, DatasetVersion.number, DatasetVersion.id)
        .join(DatasetVersion, DatasetVersion.dataset_id == Dataset.id)
        .join(MixedVersion, MixedVersion.version_id == DatasetVersion.id)
        .where(MixedVersion.source_id.in_(version_ids))
        .order_by(DatasetVersion.id)
        .distinct()
    )
    return [f"{name}, version {number}" for name, number, _ in rows]


def _refuse_if_tokenizer_is_wanted(
    session: Read, team_id: UUID, dataset: Dataset, versions: Sequence[DatasetVersion]
) -> None:
    """Until a preparation is planned it has no copy of a tokenizer that it takes from elsewhere."""
    going = {version.id for version in versions}
    source = public_id("ds", dataset.id)
    users = preparations_that_want(session, team_id, TokenizerKind.DATASET, source)
    names = [_name(user) for user in users if user.version_id not in going]
    if names:
        raise Conflict(
            "tokenizer_in_use",
            f"Preparations wait to copy this dataset's tokenizer: {list_users(names)}. Let them begin, or cancel them.",
            extensions={"datasets": names},
        )


def preparations_that_want(
    session: Read, team_id: UUID, kind: TokenizerKind, source: str
) -> list[Preparation]:
    """The preparations that have yet to copy the tokenizer of ``source``."""
    unplanned = session.scalars(
        select(Preparation).where(
            Preparation.team_id == team_id,
            Preparation.state == PreparationState.WAITING,
            Preparation.shards_total.is_(None),
        )
    )
    wanted = []
    for preparation in unplanned:
        spec = TokenizerSpec.model_validate(preparation.tokenizer)
        if spec.kind is kind and spec.source == source:
            wanted.append(preparation)
    return wanted


def _name(preparation: Preparation) -> str:
    return f"{preparation.version.dataset.name}, version {preparation.version.number}"


def _delete(
    session: Write, team_id: UUID, row: Dataset | DatasetVersion, versions: Sequence[DatasetVersion]
) -> None:
    lock_storage(session, team_id)
    ids = [version.id for version in versions]
    # A worker may be about to give an old version its readings: they are asked for when none can come any more.
    session.execute(select(DatasetVersion.id).where(DatasetVersion.id.in_(ids)).with_for_update())
    files = session.execute(
        select(DatasetFile.stored_file_id, DatasetFile.reading_id).where(DatasetFile.version_id.in_(ids))
    ).all()
    digests = session.scalars(select(Preparation.digest).where(Preparation.version_id.in_(ids))).all()
    table = type(row)
    session.change(delete(table).where(table.id == row.id))
    session.expunge_all()  # the database took what belonged to it along
    for version_id in ids:
        doom(session, version_folder(team_id, version_id))
    for digest in digests:
        doom(session, object_folder(team_id, digest))
    drop_unused_readings(session, team_id, [file.reading_id for file in files if file.reading_id is not None])
    drop_unused(session, team_id, [file.stored_file_id for file in files])
