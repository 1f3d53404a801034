"""Datasets: what a team uploaded, and its immutable versions. Preparations of versions: `preparations`."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.orm import selectinload

from trainwright.contracts.api import Dataset as DatasetOut
from trainwright.contracts.api import DatasetFile as DatasetFileOut
from trainwright.contracts.api import DatasetVersion as DatasetVersionOut
from trainwright.contracts.api import Page, RejectedDocument
from trainwright.contracts.run_spec import DataSpec
from trainwright_backend.core.db import Read, Write
from trainwright_backend.core.doomed import doom
from trainwright_backend.core.errors import Conflict, NotFound
from trainwright_backend.core.ids import new_id, parse_id, public_id, unknown
from trainwright_backend.datasets.preparations import (
    find_or_make,
    object_folder,
    show_preparation,
)
from trainwright_backend.datasets.tables import (
    Dataset,
    DatasetFile,
    DatasetVersion,
    Preparation,
    RejectedLine,
)

DEFAULT_DATA = DataSpec(dataset="default")
"""Tokenizer and split of the preparation that each upload makes."""

PREPARATION_USERS: list[Callable[[Read, UUID, Sequence[UUID]], list[str]]] = []
"""Who may use preparations. A higher feature adds a function of (session, team id, preparation ids) that names what
uses them, so that a refused delete can say what stands in its way."""


@dataclass(frozen=True)
class UploadedFile:
    """A file whose bytes are in the object store already."""

    name: str
    bytes: int
    digest: str
    object_key: str


@dataclass(frozen=True)
class Uploader:
    """Who uploads."""

    user_id: UUID
    name: str


def object_folder_of_dataset(team_id: UUID, dataset_id: UUID) -> str:
    """Below it lie the bytes of all uploads to the dataset."""
    return f"{team_id}/datasets/{dataset_id}"


def create_dataset(
    session: Write, team_id: UUID, dataset_id: UUID, name: str, by: Uploader, files: Sequence[UploadedFile]
) -> DatasetOut:
    """A dataset with its first version, which begins to be prepared."""
    dataset = Dataset(
        id=dataset_id, team_id=team_id, name=name, created_by=by.user_id, created_by_name=by.name
    )
    session.add(dataset)
    session.flush()
    _add_version(session, dataset, 1, files)
    return show_dataset(session, team_id, public_id("ds", dataset_id))


def add_version(session: Write, team_id: UUID, dataset_id: UUID, files: Sequence[UploadedFile]) -> DatasetOut:
    """A new version of a dataset, which begins to be prepared."""
    locked = select(Dataset).where(Dataset.id == dataset_id, Dataset.team_id == team_id).with_for_update()
    dataset = session.scalar(locked)
    if dataset is None:
        raise unknown("ds", public_id("ds", dataset_id))
    newest = session.scalar(
        select(func.max(DatasetVersion.number)).where(DatasetVersion.dataset_id == dataset_id)
    )
    _add_version(session, dataset, (newest or 0) + 1, files)
    return show_dataset(session, team_id, public_id("ds", dataset_id))


def get_dataset(session: Read, team_id: UUID, dataset: str) -> Dataset:
    """A dataset of the team by its public id.

    Raises:
        NotFound: the team has none of this id.
    """
    found = session.get(Dataset, parse_id("ds", dataset))
    if found is None or found.team_id != team_id:
        raise unknown("ds", dataset)
    return found


def show_dataset(session: Read, team_id: UUID, dataset: str) -> DatasetOut:
    """A dataset with all its versions and their preparations."""
    row = get_dataset(session, team_id, dataset)
    session.expire(row)
    return _shown(row, row.versions)


def list_datasets(session: Read, team_id: UUID, limit: int, cursor: str | None) -> Page[DatasetOut]:
    """A page of the team's datasets, newest first, each with its newest version."""
    wanted = select(Dataset).where(Dataset.team_id == team_id).order_by(Dataset.id.desc()).limit(limit + 1)
    if cursor is not None:
        wanted = wanted.where(Dataset.id < parse_id("ds", cursor))
    loading = selectinload(Dataset.versions)
    rows = session.scalars(
        wanted.options(
            loading.selectinload(DatasetVersion.files), loading.selectinload(DatasetVersion.preparations)
        )
    ).all()
    shown = [_shown(row, row.versions[:1]) for row in rows[:limit]]
    return Page(items=shown, next_cursor=shown[-1].id if len(rows) > limit else None)


def list_rejected(session: Read, team_id: UUID, dataset: str, number: int) -> list[RejectedDocument]:
    """The first lines of a version that gave no document. They do not depend on the tokenizer."""
    row = get_dataset(session, team_id, dataset)
    version = next((version for version in row.versions if version.number == number), None)
    if version is None:
        raise NotFound(f"This dataset has no version {number}: it has 1 to {row.versions[0].number}.")
    finished = [preparation for preparation in version.preparations if preparation.rejected is not None]
    if not finished:
        return []
    lines = session.scalars(
        select(RejectedLine)
        .where(RejectedLine.preparation_id == finished[0].id)
        .order_by(RejectedLine.position)
    )
    return [RejectedDocument(file=line.file, line=line.line, reason=line.reason) for line in lines]


def delete_dataset(session: Write, team_id: UUID, dataset: str) -> None:
    """Delete a dataset with its versions and preparations; their bytes follow.

    Raises:
        Conflict: runs use it; the error names them.
    """
    row = get_dataset(session, team_id, dataset)
    session.refresh(
        row, with_for_update=True
    )  # a submission holds it too, so it has its run by now or finds no dataset
    preparations = session.execute(
        select(Preparation.id, Preparation.digest)
        .join(DatasetVersion)
        .where(DatasetVersion.dataset_id == row.id)
    ).all()
    ids = [preparation_id for preparation_id, _ in preparations]
    users = [name for names_of in PREPARATION_USERS for name in names_of(session, team_id, ids)]
    if users:
        raise Conflict(
            "dataset_in_use",
            f"Runs use this dataset: {', '.join(users[:10])}{' and more' if len(users) > 10 else ''}. "
            "Delete them first.",
            extensions={"runs": users},
        )
    folders = [object_folder_of_dataset(team_id, row.id)]
    folders += [object_folder(team_id, digest) for _, digest in preparations]
    session.delete(row)
    session.flush()
    for folder in folders:
        doom(session, folder)


def _add_version(session: Write, dataset: Dataset, number: int, files: Sequence[UploadedFile]) -> None:
    version = DatasetVersion(
        id=new_id(),
        dataset_id=dataset.id,
        number=number,
        bytes=sum(file.bytes for file in files),
        digest=_content_digest(files),
    )
    session.add(version)
    session.flush()
    session.add_all(
        DatasetFile(
            version_id=version.id,
            position=position,
            name=file.name,
            bytes=file.bytes,
            digest=file.digest,
            object_key=file.object_key,
        )
        for position, file in enumerate(files)
    )
    find_or_make(session, dataset.team_id, version, DEFAULT_DATA.tokenizer, DEFAULT_DATA.validation_fraction)


def _content_digest(files: Sequence[UploadedFile]) -> str:
    listed = "".join(f"{file.digest}  {file.name}\n" for file in files)
    return hashlib.sha256(listed.encode()).hexdigest()


def _shown(row: Dataset, versions: Sequence[DatasetVersion]) -> DatasetOut:
    return DatasetOut(
        id=public_id("ds", row.id),
        name=row.name,
        created=row.created,
        created_by=row.created_by_name,
        versions=[
            DatasetVersionOut(
                number=version.number,
                created=version.created,
                bytes=version.bytes,
                files=[
                    DatasetFileOut(name=file.name, bytes=file.bytes, digest=file.digest)
                    for file in version.files
                ],
                preparations=[show_preparation(preparation) for preparation in version.preparations],
            )
            for version in versions
        ],
    )
