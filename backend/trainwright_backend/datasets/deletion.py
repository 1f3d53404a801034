"""Deleting datasets and versions that nothing needs; their objects are deleted afterwards.

A run that has ended no longer needs its data: its metrics, logs and checkpoints stay, and its reference to the preparation
is cleared. A run that has not ended may be retried, and needs its data.

Parsed files and stored files that several versions share are deleted with the last of them.
"""

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import delete, select

from trainwright.contracts.api.datasets import PreparationState
from trainwright.contracts.data_spec import TokenizerKind, TokenizerSpec
from trainwright_backend.core.db import Read, Write
from trainwright_backend.core.deletion_queue import queue_deletion
from trainwright_backend.core.errors import Conflict, NotFound
from trainwright_backend.core.ids import public_id
from trainwright_backend.datasets.chunks import version_folder
from trainwright_backend.datasets.mixtures import describe_versions
from trainwright_backend.datasets.parsed_files import delete_unused_parsed_files
from trainwright_backend.datasets.preparations import PREPARATION_USERS, object_folder
from trainwright_backend.datasets.service import lock_dataset
from trainwright_backend.datasets.tables import (
    Dataset,
    DatasetFile,
    DatasetVersion,
    MixedVersion,
    Preparation,
)
from trainwright_backend.teams.storage_quota import lock_storage
from trainwright_backend.uploads.service import delete_unused_files


def delete_dataset(session: Write, team_id: UUID, dataset: str) -> None:
    """Delete a dataset with its versions and preparations.

    Raises:
        Conflict: unfinished runs, mixtures or preparations need it; the error names them.
    """
    row = lock_dataset(session, team_id, dataset)
    _refuse_if_used(session, team_id, "dataset", row.versions)
    _refuse_if_tokenizer_needed(session, team_id, row, row.versions)
    session.deleted_names = (row.name,)
    _delete(session, team_id, row, row.versions)


def delete_version(session: Write, team_id: UUID, dataset: str, number: int) -> None:
    """Delete one version of a dataset that has more.

    Raises:
        NotFound: there is no such version.
        Conflict: it is the only version; or as for `delete_dataset`.
    """
    row = lock_dataset(session, team_id, dataset)
    version = next((version for version in row.versions if version.number == number), None)
    if version is None:
        raise NotFound(f"There is no version {number}. {describe_versions(row)}")
    if len(row.versions) == 1:
        raise Conflict("last_version", "This is the dataset's only version. Delete the dataset instead.")
    _refuse_if_used(session, team_id, "version", [version])
    _refuse_if_tokenizer_needed(session, team_id, row, [version])
    _delete(session, team_id, version, [version])


def join_names(names: Sequence[str]) -> str:
    """The first ten names, for an error message."""
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
        sentences.append(f"Runs that have not ended use this {what}: {join_names(runs)}. Cancel them first.")
    if mixtures:
        sentences.append(f"Mixtures contain this {what}: {join_names(mixtures)}. Delete them first.")
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


def _refuse_if_tokenizer_needed(
    session: Read, team_id: UUID, dataset: Dataset, versions: Sequence[DatasetVersion]
) -> None:
    """A preparation copies the tokenizer of another dataset only when it is planned."""
    deleted = {version.id for version in versions}
    source = public_id("ds", dataset.id)
    users = preparations_waiting_for(session, team_id, TokenizerKind.DATASET, source)
    names = [_name(user) for user in users if user.version_id not in deleted]
    if names:
        raise Conflict(
            "tokenizer_in_use",
            f"Preparations have yet to copy this dataset's tokenizer: {join_names(names)}. Let them start, or cancel them.",
            extensions={"datasets": names},
        )


def preparations_waiting_for(
    session: Read, team_id: UUID, kind: TokenizerKind, source: str
) -> list[Preparation]:
    """The preparations that have not yet copied the tokenizer of ``source``."""
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
    # A worker may be about to give an old version its parsed files: they are listed once none can be added.
    session.execute(select(DatasetVersion.id).where(DatasetVersion.id.in_(ids)).with_for_update())
    files = session.execute(
        select(DatasetFile.stored_file_id, DatasetFile.parsed_file_id).where(DatasetFile.version_id.in_(ids))
    ).all()
    digests = session.scalars(select(Preparation.digest).where(Preparation.version_id.in_(ids))).all()
    table = type(row)
    session.change(delete(table).where(table.id == row.id))
    session.expunge_all()  # the database has deleted the rows that belonged to it
    for version_id in ids:
        queue_deletion(session, version_folder(team_id, version_id))
    for digest in digests:
        queue_deletion(session, object_folder(team_id, digest))
    delete_unused_parsed_files(
        session, team_id, [file.parsed_file_id for file in files if file.parsed_file_id is not None]
    )
    delete_unused_files(session, team_id, [file.stored_file_id for file in files])
