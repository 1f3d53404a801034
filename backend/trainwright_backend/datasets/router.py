"""Datasets of a team: previews of uploads, versions, documents, counts, preparations and tokenizers."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request

from trainwright.contracts.api.datasets import (
    CountRequest,
    Dataset,
    DocumentSample,
    NewDataset,
    NewPreparation,
    NewTokenizer,
    NewVersion,
    Preparation,
    RecipeCounts,
    Tokenizer,
)
from trainwright.contracts.api.envelopes import Page
from trainwright.contracts.api.uploads import Preview, PreviewRequest, RejectedDocument
from trainwright_backend.auth.policies import Access, Editor, Viewer
from trainwright_backend.core.db import Database, ReadSession, WriteSession
from trainwright_backend.core.policy import GuardedRoute
from trainwright_backend.core.storage import Store
from trainwright_backend.datasets import (
    counts,
    deletion,
    documents,
    previews,
    requests,
    service,
    tokenizers,
)
from trainwright_backend.datasets.service import Maker

router = APIRouter(prefix="/teams/{team}", tags=["datasets"], route_class=GuardedRoute)

LARGEST_VERSION = 2**31 - 1
VersionNumber = Annotated[int, Path(ge=1, le=LARGEST_VERSION)]


@router.post("/uploads/preview")
def preview_uploads(asked: PreviewRequest, access: Editor, request: Request, store: Store) -> Preview:
    """What complete uploads hold: format, columns, the first documents as a recipe would read them."""
    return previews.preview(_database(request), store, access.team_id, asked)


@router.get("/datasets")
def list_datasets(
    access: Viewer,
    session: ReadSession,
    limit: Annotated[int, Query(ge=1, le=100)] = 50,
    cursor: str | None = None,
) -> Page[Dataset]:
    """The team's datasets, newest first, each with its newest version."""
    return service.list_datasets(session, access.team_id, limit, cursor)


@router.post("/datasets", status_code=201)
def create_dataset(new: NewDataset, access: Editor, session: WriteSession) -> Dataset:
    """Make a dataset of complete uploads, or a mixture. It is read and prepared at once, in the background."""
    return service.create_dataset(session, access.team_id, _maker(access), new)


@router.post("/datasets/count")
def count_recipe(asked: CountRequest, access: Viewer, request: Request, store: Store) -> RecipeCounts:
    """What a recipe would keep, without applying it."""
    return counts.count_recipe(_database(request), store, access.team_id, asked)


@router.get("/datasets/{dataset}")
def get_dataset(dataset: str, access: Viewer, session: ReadSession) -> Dataset:
    """A dataset with its versions and their preparations."""
    return service.show_dataset(session, access.team_id, dataset)


@router.delete("/datasets/{dataset}", status_code=204)
def delete_dataset(dataset: str, access: Editor, session: WriteSession) -> None:
    """Delete a dataset with everything made of it; refused while runs or mixtures use it."""
    deletion.delete_dataset(session, access.team_id, dataset)


@router.post("/datasets/{dataset}/versions", status_code=201)
def create_dataset_version(dataset: str, new: NewVersion, access: Editor, session: WriteSession) -> Dataset:
    """Make the dataset's next version: other files, another recipe, or both. Versions never change."""
    return service.add_version(session, access.team_id, dataset, new)


@router.delete("/datasets/{dataset}/versions/{number}", status_code=204)
def delete_dataset_version(
    dataset: str, number: VersionNumber, access: Editor, session: WriteSession
) -> None:
    """Delete a version with everything made of it; refused while runs or mixtures use it, and for the only one."""
    deletion.delete_version(session, access.team_id, dataset, number)


@router.get("/datasets/{dataset}/versions/{number}/documents")
def list_documents(
    dataset: str,
    number: VersionNumber,
    access: Viewer,
    request: Request,
    store: Store,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    cursor: str | None = None,
) -> Page[DocumentSample]:
    """A version's documents as they were read, those too that its recipe leaves out."""
    database = _database(request)
    return documents.list_documents(database, store, access.team_id, dataset, number, limit, cursor)


@router.get("/datasets/{dataset}/versions/{number}/rejected")
def list_rejected(
    dataset: str, number: VersionNumber, access: Viewer, session: ReadSession
) -> list[RejectedDocument]:
    """Rows of a version's files that gave no document, with the reason; up to 1,000 of them."""
    return documents.list_rejected(session, access.team_id, dataset, number)


@router.post("/datasets/{dataset}/preparations", status_code=202)
def create_preparation(
    dataset: str, new: NewPreparation, access: Editor, session: WriteSession
) -> Preparation:
    """Have a version's tokens made for a tokenizer and split; found when they were made before."""
    return requests.request_preparation(session, access.team_id, dataset, new)


@router.post("/datasets/{dataset}/preparations/{preparation}/cancel")
def cancel_preparation(dataset: str, preparation: str, access: Editor, session: WriteSession) -> Preparation:
    """Stop making tokens; a later request goes on from what is done. Refused while runs wait for them."""
    return requests.cancel_preparation(session, access.team_id, dataset, preparation)


@router.get("/tokenizers")
def list_tokenizers(access: Viewer, session: ReadSession) -> list[Tokenizer]:
    """The team's uploaded tokenizers, newest first."""
    return tokenizers.list_tokenizers(session, access.team_id)


@router.post("/tokenizers", status_code=201)
def create_tokenizer(new: NewTokenizer, access: Editor, request: Request, store: Store) -> Tokenizer:
    """Keep a complete upload of a `tokenizer.json`, once it is found fit."""
    return tokenizers.create_tokenizer(_database(request), store, access.team_id, _maker(access), new)


@router.delete("/tokenizers/{tokenizer}", status_code=204)
def delete_tokenizer(tokenizer: str, access: Editor, session: WriteSession) -> None:
    """Delete a tokenizer; refused while a preparation has yet to copy it."""
    tokenizers.delete_tokenizer(session, access.team_id, tokenizer)


def _maker(access: Access) -> Maker:
    return Maker(access.user_id, access.user_name)


def _database(request: Request) -> Database:
    found = request.app.state.database
    assert isinstance(found, Database)
    return found
