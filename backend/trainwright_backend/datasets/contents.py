"""The contents of a new dataset version: files or a mixture, and a curation.

This module only reads rows and the first bytes of files. `jobs.curation` applies a curation to documents, and
`curation_counts` previews it.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from trainwright.contracts.api.datasets import NewVersion
from trainwright.contracts.base import Problem
from trainwright.contracts.curation import CurationSpec
from trainwright.contracts.file_types import HEAD_BYTES, FileTypeError, check_first_bytes
from trainwright_backend.core.db import Write
from trainwright_backend.core.errors import Invalid
from trainwright_backend.core.object_store import ObjectStore
from trainwright_backend.datasets.mixtures import find_mixed_versions, lock_datasets
from trainwright_backend.datasets.tables import DatasetVersion
from trainwright_backend.uploads.service import UploadedFile, complete_uploads

MAX_FILES = 1_000


@dataclass(frozen=True)
class FileRef:
    """A file of a version."""

    name: str
    digest: str
    bytes: int
    stored_file_id: UUID


@dataclass(frozen=True)
class VersionContents:
    """What a new version consists of. Everything in it was checked and is locked until the transaction ends."""

    curation: CurationSpec
    files: list[FileRef]
    uploads: list[str]
    """The uploads that become files of the version."""

    sources: list[tuple[DatasetVersion, float]]
    """Versions of a mixture, with their weights."""

    @property
    def digest(self) -> str:
        """SHA-256 over the names and digests of the files, or over the ids of the mixed versions."""
        listed = "".join(f"{file.digest}  {file.name}\n" for file in self.files)
        listed += "".join(f"{version.id.hex}\n" for version, _ in self.sources)
        return hashlib.sha256(listed.encode()).hexdigest()


def first_contents(
    session: Write, store: ObjectStore, team_id: UUID, uploads: Sequence[str], curation: CurationSpec
) -> VersionContents:
    """The contents of a dataset's first version.

    Raises:
        Invalid: there are neither files nor a mixture, or both, or one of them cannot be used.
    """
    if not uploads and not curation.mix:
        message = "There are no files. Name complete uploads, or datasets to mix under curation.mix."
        raise Invalid.at("uploads", message, [])
    return _contents(session, store, team_id, [], uploads, curation, None)


def next_contents(
    session: Write, store: ObjectStore, team_id: UUID, base: DatasetVersion, new: NewVersion
) -> VersionContents:
    """The contents of a later version. ``base`` provides what ``new`` leaves out.

    Raises:
        Invalid: as `first_contents`.
    """
    base_curation = CurationSpec.model_validate(base.curation)
    curation = base_curation if new.curation is None else new.curation
    if new.uploads and new.curation is None and base_curation.mix:
        message = f"Version {base.number} is a mixture. To use files instead, give a curation without mix."
        raise Invalid.at("curation", message)
    keeps_files = (new.uploads is None or new.keep_files) and not curation.mix
    kept_files = files_of(base) if keeps_files else []
    if not kept_files and not new.uploads and not curation.mix:
        message = f"Version {base.number} has no files to keep. Name complete uploads, or datasets to mix."
        raise Invalid.at(
            "uploads", message if keeps_files else "There are no files. Name complete uploads.", []
        )
    return _contents(session, store, team_id, kept_files, new.uploads or [], curation, base.dataset_id)


def files_of(version: DatasetVersion) -> list[FileRef]:
    """The files of a version, in order."""
    return [
        FileRef(file.name, file.stored_file.digest, file.stored_file.bytes, file.stored_file_id)
        for file in version.files
    ]


def _contents(
    session: Write,
    store: ObjectStore,
    team_id: UUID,
    kept_files: list[FileRef],
    uploads: Sequence[str],
    curation: CurationSpec,
    own: UUID | None,
) -> VersionContents:
    if curation.mix and uploads:
        message = "A mixture has no files. Leave uploads empty, or remove mix from the curation."
        raise Invalid.at("curation.mix", message)
    # Datasets first, then the team's files: deleting a dataset takes the locks in this order.
    mix = lock_datasets(session, team_id, curation.mix, own)
    sources = find_mixed_versions(session, team_id, mix, own)
    uploaded = complete_uploads(session, team_id, list(uploads))
    added = [FileRef(file.name, file.digest, file.bytes, file.stored_file_id) for file in uploaded]
    files = kept_files + added
    _check_files(files)
    _check_types(uploaded, store)
    named = [
        source.model_copy(update={"version": version.number})
        for source, (version, _) in zip(mix, sources, strict=True)
    ]
    return VersionContents(curation.model_copy(update={"mix": named}), files, list(uploads), sources)


def _check_types(files: Sequence[UploadedFile], store: ObjectStore) -> None:
    """Refuse files whose first bytes no reader accepts. Errors further on are found only when the file is read.

    Raises:
        Invalid: at `uploads`, for each of them.
    """
    problems = []
    for file in files:
        try:
            head = b"".join(store.open_read(file.object_key, 0, HEAD_BYTES))
            check_first_bytes(file.name, head)
        except FileTypeError as error:
            problems.append(Problem(field="uploads", message=str(error), value=file.name))
    if problems:
        raise Invalid(problems)


def _check_files(files: Sequence[FileRef]) -> None:
    if len(files) > MAX_FILES:
        message = f"A version can have up to {MAX_FILES:,} files; this one would have {len(files):,}. Merge some of them."
        raise Invalid.at("uploads", message)
    twice = [name for name, count in Counter(file.name for file in files).items() if count > 1]
    if twice:
        problems = [
            Problem(
                field="uploads",
                message=f"The version would have two files named {name}. Rename one, or leave it out.",
                value=name,
            )
            for name in twice[:10]
        ]
        raise Invalid(problems)
