"""Datasets and their immutable versions: creating, listing and showing them. `deletion` deletes them."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Select, bindparam, func, select
from sqlalchemy.orm import aliased, selectinload
from sqlalchemy.orm.interfaces import ORMOption

from trainwright.contracts.api.datasets import Dataset as DatasetOut
from trainwright.contracts.api.datasets import DatasetFile as DatasetFileOut
from trainwright.contracts.api.datasets import DatasetVersion as DatasetVersionOut
from trainwright.contracts.api.datasets import (
    NewDataset,
    NewVersion,
    SameFiles,
    Statistics,
    VersionState,
)
from trainwright.contracts.api.envelopes import Page
from trainwright.contracts.curation import Compression, CurationSpec, FileFormat, MixSource
from trainwright.contracts.data_spec import DataSpec
from trainwright_backend.core.author import Author
from trainwright_backend.core.db import Read, Write
from trainwright_backend.core.errors import Invalid, NotFound
from trainwright_backend.core.ids import new_id, parse_id, public_id, unknown
from trainwright_backend.core.object_store import ObjectStore
from trainwright_backend.core.text_search import contains_any
from trainwright_backend.datasets.contents import (
    VersionContents,
    first_contents,
    next_contents,
)
from trainwright_backend.datasets.job_queue import JobKind, send_job
from trainwright_backend.datasets.mixtures import describe_versions, lock_datasets
from trainwright_backend.datasets.parsed_files import ensure_parsed
from trainwright_backend.datasets.preparations import find_or_create, show_preparation
from trainwright_backend.datasets.tables import Dataset, DatasetFile, DatasetVersion, MixedVersion
from trainwright_backend.datasets.version_changes import changes_between
from trainwright_backend.teams.idempotency import deleted_error, reserve_key
from trainwright_backend.teams.tables import IdempotencyKey
from trainwright_backend.uploads.service import consume_uploads
from trainwright_backend.uploads.tables import StoredFile

DEFAULT_DATA = DataSpec(dataset="default")
"""Tokenizer and split of the preparation that every new version starts with."""


def create_dataset(
    session: Write, store: ObjectStore, team_id: UUID, by: Author, new: NewDataset, key: str | None
) -> DatasetOut:
    """Create a dataset with its first version, and start to read and prepare it; or find what was created with the same ``key``.

    Raises:
        AppError: 422 ``idempotency_key_reused``: the key was used with another body; 410 ``dataset_deleted``.
        Invalid: the files or the mixture cannot be used.
    """
    earlier = _find_or_reserve(session, team_id, key, {"dataset": new.model_dump(mode="json")})
    if earlier is not None:
        return earlier
    contents = first_contents(session, store, team_id, new.uploads, new.curation)
    dataset = Dataset(
        id=new_id(),
        team_id=team_id,
        name=new.name,
        created_by=by.user_id,
        created_by_name=by.name,
        last_version=0,
    )
    session.add(dataset)
    session.flush()
    session.created_id = public_id("ds", dataset.id)
    _add_version(session, dataset, contents, [])
    _record(session, team_id, key, dataset)
    return show_dataset(session, team_id, session.created_id)


def add_version(
    session: Write, store: ObjectStore, team_id: UUID, dataset: str, new: NewVersion, key: str | None
) -> DatasetOut:
    """Create the next version of a dataset, with other files, another curation, or both.

    Raises:
        AppError: as for `create_dataset`.
        Invalid: as for `create_dataset`, or the dataset has no version ``new.base``.
    """
    earlier = _find_or_reserve(session, team_id, key, {"version of": dataset, **new.model_dump(mode="json")})
    if earlier is not None:
        return earlier
    row = get_dataset(session, team_id, dataset)
    mix = _mix_of(_base(row, new), new)
    lock_datasets(session, team_id, mix, row.id)
    row = lock_dataset(session, team_id, dataset)
    newest, base = row.versions[0], _base(row, new)
    if base is None:
        raise Invalid.at("base", describe_versions(row), new.base)
    contents = next_contents(session, store, team_id, base, new)
    _add_version(session, row, contents, changes_between(newest, contents))
    _record(session, team_id, key, row)
    return show_dataset(session, team_id, dataset)


def _find_or_reserve(session: Write, team_id: UUID, key: str | None, request: Any) -> DatasetOut | None:
    """The dataset of an earlier request with this Idempotency-Key, which is reserved if there was none."""
    earlier = reserve_key(session, team_id, key, request)
    if earlier is None:
        return None
    if earlier.dataset_id is None or session.get(Dataset, earlier.dataset_id) is None:
        raise deleted_error("dataset")
    return show_dataset(session, team_id, public_id("ds", earlier.dataset_id))


def _record(session: Write, team_id: UUID, key: str | None, dataset: Dataset) -> None:
    """Store what the request with this key has created."""
    if key is not None:
        session.get_one(IdempotencyKey, (team_id, key)).dataset_id = dataset.id
        session.flush()


def _base(row: Dataset, new: NewVersion) -> DatasetVersion | None:
    return next((version for version in row.versions if new.base in (None, version.number)), None)


def _mix_of(base: DatasetVersion | None, new: NewVersion) -> list[MixSource]:
    """The datasets that the new version mixes, as far as they are known before its dataset is locked."""
    if new.curation is not None:
        return new.curation.mix
    return [] if base is None else CurationSpec.model_validate(base.curation).mix


def get_dataset(session: Read, team_id: UUID, dataset: str) -> Dataset:
    """A dataset of the team, by its public id.

    Raises:
        NotFound: the team has no such dataset.
    """
    found = session.get(Dataset, parse_id("ds", dataset))
    if found is None or found.team_id != team_id:
        raise unknown("ds", dataset)
    return found


def lock_dataset(session: Write, team_id: UUID, dataset: str) -> Dataset:
    """As `get_dataset`, locked. A submission locks it too, so its run exists already or it will not find the dataset."""
    row = get_dataset(session, team_id, dataset)
    session.refresh(row, with_for_update=True)
    return row


def get_version(session: Read, team_id: UUID, dataset: str, number: int) -> DatasetVersion:
    """A version of one of the team's datasets.

    Raises:
        NotFound: there is no such dataset or version.
    """
    row = get_dataset(session, team_id, dataset)
    version = next((version for version in row.versions if version.number == number), None)
    if version is None:
        raise NotFound(f"There is no version {number}. {describe_versions(row)}")
    return version


def show_dataset(session: Read, team_id: UUID, dataset: str) -> DatasetOut:
    """A dataset with all its versions and their preparations."""
    session.expire_all()  # objects that were loaded before a change in this transaction are stale
    row = get_dataset(session, team_id, dataset)
    versions = select(DatasetVersion).where(DatasetVersion.dataset_id == row.id)
    wanted = versions.order_by(DatasetVersion.number.desc()).options(*_load_version())
    found = session.scalars(wanted).all()
    same = _find_same_files(session, row, found[0]) if found else []
    return _to_response(row, found).model_copy(update={"same_files_as": same})


def _find_same_files(session: Read, row: Dataset, version: DatasetVersion) -> list[SameFiles]:
    """The team's other datasets whose newest version has exactly the files of ``version``."""
    digests = sorted(file.stored_file.digest for file in version.files)
    if not digests:
        return []
    has_first_file = (
        select(DatasetFile.version_id)
        .join(StoredFile, StoredFile.id == DatasetFile.stored_file_id)
        .where(StoredFile.team_id == row.team_id, StoredFile.digest == digests[0])
    )
    newer = aliased(DatasetVersion)
    is_newest = ~(
        select(newer.id)
        .where(newer.dataset_id == DatasetVersion.dataset_id, newer.number > DatasetVersion.number)
        .exists()
    )
    candidates = session.execute(
        select(DatasetVersion.id, DatasetVersion.number, Dataset.id, Dataset.name)
        .join(Dataset, Dataset.id == DatasetVersion.dataset_id)
        .where(DatasetVersion.id.in_(has_first_file), DatasetVersion.bytes == version.bytes)
        .where(DatasetVersion.dataset_id != row.id, is_newest)
        .order_by(Dataset.id)
    ).all()
    found: dict[UUID, list[str]] = {version_id: [] for version_id, *_ in candidates}
    files = (
        select(DatasetFile.version_id, StoredFile.digest)
        .join(StoredFile, StoredFile.id == DatasetFile.stored_file_id)
        .where(DatasetFile.version_id.in_(found))
    )
    for version_id, digest in session.execute(files) if found else ():
        found[version_id].append(digest)
    return [
        SameFiles(dataset=public_id("ds", dataset_id), name=name, version=number)
        for version_id, number, dataset_id, name in candidates
        if sorted(found[version_id]) == digests
    ]


def list_datasets(
    session: Read, team_id: UUID, words: str, limit: int, cursor: str | None
) -> Page[DatasetOut]:
    """A page of the team's datasets whose names contain all of the words, newest first, each with its newest version."""
    wanted = select(Dataset).where(Dataset.team_id == team_id).order_by(Dataset.id.desc()).limit(limit + 1)
    for word in words.split():
        wanted = wanted.where(contains_any([Dataset.name], [word]))
    if cursor is not None:
        wanted = wanted.where(Dataset.id < parse_id("ds", cursor))
    rows = session.scalars(wanted).all()
    newest = _newest_versions(session, [row.id for row in rows[:limit]])
    shown = [_to_response(row, newest.get(row.id, [])) for row in rows[:limit]]
    return Page(items=shown, next_cursor=shown[-1].id if len(rows) > limit else None)


def _newest_versions(session: Read, dataset_ids: Sequence[UUID]) -> dict[UUID, list[DatasetVersion]]:
    """The newest version of each dataset, without loading the others."""
    found = session.scalars(_NEWEST_VERSIONS, {"dataset_ids": dataset_ids})
    return {version.dataset_id: [version] for version in found}


def _load_version() -> list[ORMOption]:
    """Load everything that a version shows, in one query per table."""
    files = selectinload(DatasetVersion.files)
    return [
        files.joinedload(DatasetFile.stored_file),
        files.joinedload(DatasetFile.parsed_file),
        selectinload(DatasetVersion.preparations),
    ]


def _select_newest_versions() -> Select[DatasetVersion]:
    highest = (
        select(DatasetVersion.dataset_id, func.max(DatasetVersion.number).label("number"))
        .where(DatasetVersion.dataset_id.in_(bindparam("dataset_ids", expanding=True)))
        .group_by(DatasetVersion.dataset_id)
        .subquery()
    )
    is_newest = (DatasetVersion.dataset_id == highest.c.dataset_id) & (
        DatasetVersion.number == highest.c.number
    )
    return select(DatasetVersion).join(highest, is_newest).options(*_load_version())


_NEWEST_VERSIONS = _select_newest_versions()
"""Built once (see `core.db`)."""


def _add_version(session: Write, dataset: Dataset, contents: VersionContents, changes: list[str]) -> None:
    dataset.last_version += 1
    version = DatasetVersion(
        id=new_id(),
        dataset_id=dataset.id,
        number=dataset.last_version,
        bytes=sum(file.bytes for file in contents.files),
        digest=contents.digest,
        curation=contents.curation.model_dump(mode="json"),
        changes=changes,
        state=VersionState.WAITING,
    )
    session.add(version)
    session.flush()
    session.add_all(
        DatasetFile(
            version_id=version.id, position=position, name=file.name, stored_file_id=file.stored_file_id
        )
        for position, file in enumerate(contents.files)
    )
    session.add_all(
        MixedVersion(version_id=version.id, position=position, source_id=source.id, weight=weight)
        for position, (source, weight) in enumerate(contents.sources)
    )
    session.flush()
    ensure_parsed(session, dataset.team_id, version, contents.curation.read)
    consume_uploads(session, dataset.team_id, contents.uploads)
    find_or_create(
        session, dataset.team_id, version, DEFAULT_DATA.tokenizer, DEFAULT_DATA.validation_fraction
    )
    send_job(session, JobKind.CURATE, version.id)  # needed if every file was parsed before, or for a mixture


def _to_response(row: Dataset, versions: Sequence[DatasetVersion]) -> DatasetOut:
    return DatasetOut(
        id=public_id("ds", row.id),
        name=row.name,
        created=row.created,
        created_by=row.created_by_name,
        versions=[_version_to_response(version) for version in versions],
    )


def _version_to_response(version: DatasetVersion) -> DatasetVersionOut:
    parsed_files = [file.parsed_file for file in version.files if file.parsed_file is not None]
    statistics = None if version.statistics is None else Statistics.model_validate(version.statistics)
    return DatasetVersionOut(
        number=version.number,
        created=version.created,
        bytes=version.bytes,
        files=[_file_to_response(file) for file in version.files],
        curation=CurationSpec.model_validate(version.curation),
        state=VersionState(version.state),
        error=version.error,
        read_bytes=sum(parsed_file.read_bytes for parsed_file in parsed_files),
        statistics=statistics,
        changes=version.changes,
        preparations=[
            show_preparation(preparation, None if statistics is None else statistics.rejected)
            for preparation in version.preparations
        ],
    )


def _file_to_response(file: DatasetFile) -> DatasetFileOut:
    parsed_file = file.parsed_file
    response = DatasetFileOut(name=file.name, bytes=file.stored_file.bytes, digest=file.stored_file.digest)
    if parsed_file is None or parsed_file.format is None:
        return response
    parsed: dict[str, object] = {
        "format": FileFormat(parsed_file.format),
        "compression": Compression(parsed_file.compression or Compression.NONE),
    }
    if parsed_file.state == VersionState.READY:
        parsed |= {"documents": parsed_file.documents, "rejected": parsed_file.rejected}
    return response.model_copy(update=parsed)
