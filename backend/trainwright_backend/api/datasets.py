"""Datasets of a team: versions, documents, counts and preparations."""

from typing import Annotated

from fastapi import Path, Query

from trainwright.contracts.api.datasets import (
    CountRequest,
    CurationCounts,
    Dataset,
    DocumentSample,
    NewDataset,
    NewPreparation,
    NewVersion,
    Preparation,
)
from trainwright.contracts.api.envelopes import Page
from trainwright.contracts.api.uploads import RejectedDocument
from trainwright_backend.api.dependencies import (
    CurrentDatabase,
    IdempotencyKey,
    ReadSession,
    Store,
    WriteSession,
)
from trainwright_backend.auth.policies import Editor, Viewer
from trainwright_backend.core.author import Author
from trainwright_backend.core.db import storable
from trainwright_backend.core.policy import GuardedRoute
from trainwright_backend.core.resource_router import ResourceRouter
from trainwright_backend.datasets import curation_counts, deletion, documents, preparation_requests, service

router = ResourceRouter(prefix="/teams/{team}/datasets", tags=["datasets"], route_class=GuardedRoute)

MAX_VERSION = 2**31 - 1
VersionNumber = Annotated[int, Path(ge=1, le=MAX_VERSION)]


@router.get("")
def list_datasets(
    access: Viewer,
    session: ReadSession,
    q: Annotated[str, Query(max_length=200, description="Words that the name must contain.")] = "",
    limit: Annotated[int, Query(ge=1, le=100)] = 50,
    cursor: str | None = None,
) -> Page[Dataset]:
    """The team's datasets, newest first, each with its newest version."""
    return service.list_datasets(session, access.team_id, storable(q), limit, cursor)


@router.post("", status_code=201)
def create_dataset(
    new: NewDataset,
    access: Editor,
    session: WriteSession,
    store: Store,
    idempotency_key: IdempotencyKey = None,
) -> Dataset:
    """Create a dataset from complete uploads, or a mixture. It is read and prepared immediately, in the background.

    With an Idempotency-Key, repeating the request returns the same dataset.
    """
    by = Author(access.user_id, access.user_name)
    return service.create_dataset(session, store, access.team_id, by, new, idempotency_key)


@router.post("/count")
def count_curation(
    asked: CountRequest, access: Viewer, database: CurrentDatabase, store: Store
) -> CurationCounts:
    """What a curation would keep, without applying it."""
    return curation_counts.count_curation(database, store, access.team_id, asked)


@router.get("/{dataset}")
def get_dataset(dataset: str, access: Viewer, session: ReadSession) -> Dataset:
    """A dataset with its versions and their preparations."""
    return service.show_dataset(session, access.team_id, dataset)


@router.delete("/{dataset}", status_code=204)
def delete_dataset(dataset: str, access: Editor, session: WriteSession) -> None:
    """Delete a dataset with everything derived from it; refused while runs or mixtures use it."""
    deletion.delete_dataset(session, access.team_id, dataset)


@router.post("/{dataset}/versions", status_code=201)
def create_dataset_version(
    dataset: str,
    new: NewVersion,
    access: Editor,
    session: WriteSession,
    store: Store,
    idempotency_key: IdempotencyKey = None,
) -> Dataset:
    """Create the dataset's next version: other files, another curation, or both. Versions never change.

    With an Idempotency-Key, repeating the request creates no other version.
    """
    return service.add_version(session, store, access.team_id, dataset, new, idempotency_key)


@router.delete("/{dataset}/versions/{number}", status_code=204)
def delete_dataset_version(
    dataset: str, number: VersionNumber, access: Editor, session: WriteSession
) -> None:
    """Delete a version with everything derived from it; refused while runs or mixtures use it, and for the only version."""
    deletion.delete_version(session, access.team_id, dataset, number)


@router.get("/{dataset}/versions/{number}/documents")
def list_documents(
    dataset: str,
    number: VersionNumber,
    access: Viewer,
    database: CurrentDatabase,
    store: Store,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    cursor: str | None = None,
) -> Page[DocumentSample]:
    """A version's documents as they were read, including those that its curation excludes."""
    return documents.list_documents(database, store, access.team_id, dataset, number, limit, cursor)


@router.get("/{dataset}/versions/{number}/rejected")
def list_rejected(
    dataset: str, number: VersionNumber, access: Viewer, session: ReadSession
) -> list[RejectedDocument]:
    """Rows of a version's files that are not documents, with the reason; up to 1,000 of them."""
    return documents.list_rejected(session, access.team_id, dataset, number)


@router.post("/{dataset}/preparations", status_code=202)
def create_preparation(
    dataset: str, new: NewPreparation, access: Editor, session: WriteSession
) -> Preparation:
    """Tokenize a version for a tokenizer and a split. An existing preparation is reused."""
    return preparation_requests.request_preparation(session, access.team_id, dataset, new)


@router.post("/{dataset}/preparations/{preparation}/cancel")
def cancel_preparation(dataset: str, preparation: str, access: Editor, session: WriteSession) -> Preparation:
    """Stop tokenizing. A later request continues where it stopped. Refused while runs wait for the tokens."""
    return preparation_requests.cancel_preparation(session, access.team_id, dataset, preparation)
