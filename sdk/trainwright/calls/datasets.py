# Generated from async_calls/datasets.py by infra/sync_client.py. Change that file.
"""Datasets with their uploads, versions and preparations, and tokenizers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainwright.calls.team import TeamCalls
from trainwright.contracts.api.datasets import (
    CountRequest,
    CurationCounts,
    Dataset,
    DatasetVersion,
    DocumentSample,
    NewDataset,
    NewPreparation,
    NewTokenizer,
    Preparation,
    PreparationState,
    Tokenizer,
    VersionState,
)
from trainwright.contracts.api.envelopes import Page
from trainwright.contracts.api.uploads import Preview, RejectedDocument, Upload
from trainwright.contracts.curation import CurationSpec
from trainwright.contracts.data_spec import TokenizerSpec
from trainwright.transport.blocking import call_blocking, sleep
from trainwright.transport.local_files import LocalFile, check_documents, find_files
from trainwright.transport.progress import OnProgress, ProgressMeter
from trainwright.transport.tus import TusUploader


class DatasetCalls(TeamCalls):
    """Calls that upload, curate and prepare data."""

    def datasets(self, q: str = "") -> list[Dataset]:
        """The datasets whose names contain all words of ``q``, newest first, each with its newest version."""
        return self._client.get_pages(f"{self._path}/datasets", Dataset, {"q": q} if q else {})

    def dataset(self, dataset_id: str) -> Dataset:
        return self._client.get(f"{self._path}/datasets/{dataset_id}", Dataset)

    def upload(
        self,
        name: str,
        files: Sequence[Path],
        curation: CurationSpec | None = None,
        on_progress: OnProgress | None = None,
    ) -> Dataset:
        """Upload files and folders as version 1 of a new dataset.

        Repeat an interrupted call, even from another process, to continue the upload.

        Raises:
            ValidationError: the name or the curation would be refused. Nothing was sent.
            ValueError: files cannot be opened, are empty, or of no supported type. Nothing was sent.
        """
        NewDataset(name=name, curation=curation or CurationSpec())
        new = {"name": name} | (
            {"curation": curation.model_dump(mode="json")} if curation is not None else {}
        )
        return self._upload(f"{self._path}/datasets", new, files, on_progress)

    def upload_version(
        self,
        dataset_id: str,
        files: Sequence[Path],
        curation: CurationSpec | None = None,
        on_progress: OnProgress | None = None,
        *,
        keep_files: bool = False,
    ) -> Dataset:
        """Upload files and folders as the next version of a dataset, or add them to the files of the newest version."""
        new: dict[str, Any] = {"keep_files": keep_files}
        new |= {"curation": curation.model_dump(mode="json")} if curation is not None else {}
        return self._upload(f"{self._path}/datasets/{dataset_id}/versions", new, files, on_progress)

    def change_curation(self, dataset_id: str, curation: CurationSpec) -> Dataset:
        """Create a version with the files of the newest one and another curation."""
        new = {"curation": curation.model_dump(mode="json")}
        path = f"{self._path}/datasets/{dataset_id}/versions"
        return self._client.post_idempotent(path, Dataset, json=new)

    def mix(self, name: str, curation: CurationSpec) -> Dataset:
        """Create a mixture of other datasets, as described by the curation."""
        new = {"name": name, "curation": curation.model_dump(mode="json")}
        return self._client.post_idempotent(f"{self._path}/datasets", Dataset, json=new)

    def preview(
        self,
        files: Sequence[Path],
        curation: CurationSpec | None = None,
        on_progress: OnProgress | None = None,
    ) -> Preview:
        """Preview files by their first rows. This uploads the files, so `upload` has little left to send."""
        found = call_blocking(find_files, files)
        _, ids = self._send(found.files, on_progress)
        asked = {"uploads": ids} | (
            {"curation": curation.model_dump(mode="json")} if curation is not None else {}
        )
        return self._client.post_idempotent(f"{self._path}/uploads/preview", Preview, json=asked)

    def uploads(self) -> list[Upload]:
        """Uploads in progress, and complete uploads that no dataset uses."""
        return self._client.get_pages(f"{self._path}/uploads", Upload)

    def count(
        self, curation: CurationSpec, dataset_id: str | None = None, version: int | None = None
    ) -> CurationCounts:
        """Count what a curation would keep of a version's documents, or what a mixture would contain."""
        asked = CountRequest(dataset=dataset_id, version=version, curation=curation).model_dump(mode="json")
        return self._client.post_idempotent(f"{self._path}/datasets/count", CurationCounts, json=asked)

    def documents(
        self, dataset_id: str, version: int, limit: int = 50, cursor: str | None = None
    ) -> Page[DocumentSample]:
        """A page of a version's documents, including those that its curation drops."""
        path = f"{self._path}/datasets/{dataset_id}/versions/{version}/documents"
        asked = {"limit": limit} | ({"cursor": cursor} if cursor else {})
        return self._client.get(path, Page[DocumentSample], asked)

    def rejected_documents(self, dataset_id: str, version: int) -> list[RejectedDocument]:
        path = f"{self._path}/datasets/{dataset_id}/versions/{version}/rejected"
        return self._client.get_list(path, RejectedDocument)

    def delete_dataset(self, dataset_id: str) -> None:
        self._client.delete(f"{self._path}/datasets/{dataset_id}")

    def delete_version(self, dataset_id: str, version: int) -> None:
        self._client.delete(f"{self._path}/datasets/{dataset_id}/versions/{version}")

    def prepare(
        self,
        dataset_id: str,
        version: int | None = None,
        tokenizer: TokenizerSpec | None = None,
        validation_fraction: float = 0.01,
    ) -> Preparation:
        """Tokenize a version with a tokenizer and validation split. An existing preparation is returned."""
        new = NewPreparation(
            version=version,
            tokenizer=tokenizer or TokenizerSpec(),
            validation_fraction=validation_fraction,
        )
        path = f"{self._path}/datasets/{dataset_id}/preparations"
        return self._client.post(path, Preparation, json=new.model_dump(mode="json"))

    def cancel_preparation(self, dataset_id: str, preparation_id: str) -> Preparation:
        """Cancel a preparation. Finished shards are kept for the next time."""
        path = f"{self._path}/datasets/{dataset_id}/preparations/{preparation_id}/cancel"
        return self._client.post(path, Preparation)

    def tokenizers(self) -> list[Tokenizer]:
        """The team's uploaded tokenizers."""
        return self._client.get_list(f"{self._path}/tokenizers", Tokenizer)

    def upload_tokenizer(self, name: str, file: Path) -> Tokenizer:
        """Upload a `tokenizer.json`."""
        NewTokenizer(name=name, upload="")  # a refused name is noticed before the file is sent
        found = call_blocking(find_files, [file])
        sender, (upload,) = self._send(found.files, None)
        new = NewTokenizer(name=name, upload=upload).model_dump(mode="json")
        made = self._client.post(f"{self._path}/tokenizers", Tokenizer, json=new)
        sender.forget(found.files)
        return made

    def delete_tokenizer(self, tokenizer_id: str) -> None:
        self._client.delete(f"{self._path}/tokenizers/{tokenizer_id}")

    def wait_for_version(self, dataset_id: str, number: int, poll_seconds: float = 1.0) -> DatasetVersion:
        """Wait until a version has been read and its first preparation has ended, or either has failed.

        Raises:
            LookupError: it was deleted in the meantime.
        """
        while True:
            dataset = self._client.get_patiently(f"{self._path}/datasets/{dataset_id}", Dataset)
            version = next((version for version in dataset.versions if version.number == number), None)
            if version is None:
                raise LookupError(f"version {number} of {dataset_id} was deleted in the meantime")
            if version.state is VersionState.FAILED or _is_prepared(version):
                return version
            sleep(poll_seconds)

    def _upload(
        self, path: str, new: Mapping[str, Any], paths: Sequence[Path], on_progress: OnProgress | None
    ) -> Dataset:
        found = call_blocking(find_files, paths)
        call_blocking(check_documents, found.files)
        sender, ids = self._send(found.files, on_progress)
        made = self._client.post_idempotent(path, Dataset, json={**new, "uploads": ids})
        sender.forget(found.files)
        return made

    def _send(
        self, files: Sequence[LocalFile], on_progress: OnProgress | None
    ) -> tuple[TusUploader, list[str]]:
        sender = TusUploader(self._client, f"{self._path}/uploads")
        meter = ProgressMeter(sum(file.size_bytes for file in files), on_progress)
        return sender, sender.send(files, meter.add)


def _is_prepared(version: DatasetVersion) -> bool:
    """Whether the version is ready and none of its preparations is in progress."""
    active = (PreparationState.WAITING, PreparationState.WORKING)
    return version.state is VersionState.READY and all(
        preparation.state not in active for preparation in version.preparations
    )
