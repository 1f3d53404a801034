"""Uploaded tokenizers: checking, listing and deleting them. `data_resolution` finds the tokenizer of a submission.

This process never parses a tokenizer; a child process checks it.
"""

from uuid import UUID

from sqlalchemy import select
from sqlalchemy.orm import joinedload

from trainwright.contracts.api.datasets import NewTokenizer
from trainwright.contracts.api.datasets import Tokenizer as TokenizerOut
from trainwright.contracts.data_spec import TokenizerKind
from trainwright.prepare.tokenizer import CheckedTokenizer, UnusableTokenizerError, check_tokenizer
from trainwright_backend.core.author import Author
from trainwright_backend.core.db import Database, Read, Write
from trainwright_backend.core.errors import Conflict, Invalid
from trainwright_backend.core.ids import new_id, parse_id, public_id, unknown
from trainwright_backend.core.object_store import ObjectStore
from trainwright_backend.datasets.deletion import join_names, preparations_waiting_for
from trainwright_backend.datasets.tables import Preparation, UploadedTokenizer
from trainwright_backend.teams.storage_quota import lock_storage
from trainwright_backend.uploads.service import (
    UploadedFile,
    complete_uploads,
    consume_uploads,
    delete_unused_files,
)

MAX_TOKENIZER_BYTES = 64 * 2**20


def create_tokenizer(
    database: Database, store: ObjectStore, team_id: UUID, by: Author, new: NewTokenizer
) -> TokenizerOut:
    """Check an uploaded `tokenizer.json` and store it.

    Raises:
        Invalid: the upload is not complete, or the platform cannot use the tokenizer.
    """
    with database.write() as session:
        file = _upload(session, team_id, new.upload)
    checked = _check(store, file, new.upload)
    with database.write() as session:
        file = _upload(session, team_id, new.upload)
        row = UploadedTokenizer(
            id=new_id(),
            team_id=team_id,
            name=new.name,
            stored_file_id=file.stored_file_id,
            vocabulary=checked.vocabulary,
            end_of_text=checked.end_of_text_token,
            created_by=by.user_id,
            created_by_name=by.name,
        )
        session.add(row)
        session.flush()
        consume_uploads(session, team_id, [new.upload])
        return _to_response(row)


def list_tokenizers(session: Read, team_id: UUID) -> list[TokenizerOut]:
    """The team's tokenizers, newest first."""
    rows = session.scalars(
        select(UploadedTokenizer)
        .where(UploadedTokenizer.team_id == team_id)
        .order_by(UploadedTokenizer.id.desc())
        .options(joinedload(UploadedTokenizer.stored_file))
    )
    return [_to_response(row) for row in rows]


def delete_tokenizer(session: Write, team_id: UUID, tokenizer: str) -> None:
    """Delete a tokenizer. Planned preparations have their own copy.

    Raises:
        Conflict: preparations have not copied it yet; the error names their datasets.
    """
    lock_storage(session, team_id)
    row = session.get(UploadedTokenizer, parse_id("tok", tokenizer), with_for_update=True)
    if row is None or row.team_id != team_id:
        raise unknown("tok", tokenizer)
    waiting = preparations_waiting_for(session, team_id, TokenizerKind.UPLOADED, tokenizer)
    if waiting:
        names = [_name(preparation) for preparation in waiting]
        raise Conflict(
            "tokenizer_in_use",
            f"Preparations have yet to copy this tokenizer: {join_names(names)}. Let them start, or cancel them.",
            extensions={"datasets": names},
        )
    stored_file_id = row.stored_file_id
    session.deleted_names = (row.name,)
    session.delete(row)
    session.flush()
    delete_unused_files(session, team_id, [stored_file_id])


def _upload(session: Write, team_id: UUID, upload: str) -> UploadedFile:
    try:
        (file,) = complete_uploads(session, team_id, [upload])
    except Invalid as error:
        raise Invalid(
            [problem.model_copy(update={"field": "upload"}) for problem in error.errors], detail=error.detail
        ) from None
    if file.bytes > MAX_TOKENIZER_BYTES:
        message = (
            f"A tokenizer.json can have up to {MAX_TOKENIZER_BYTES // 2**20} MiB; this file has {file.bytes:,} bytes. "
            "Upload the tokenizer.json itself."
        )
        raise Invalid.at("upload", message, upload)
    return file


def _check(store: ObjectStore, file: UploadedFile, upload: str) -> CheckedTokenizer:
    try:
        return check_tokenizer(store.read(file.object_key))
    except UnusableTokenizerError as error:
        raise Invalid.at("upload", str(error), upload) from None


def _name(preparation: Preparation) -> str:
    return f"{preparation.version.dataset.name}, version {preparation.version.number}"


def _to_response(row: UploadedTokenizer) -> TokenizerOut:
    return TokenizerOut(
        id=public_id("tok", row.id),
        name=row.name,
        vocabulary=row.vocabulary,
        end_of_text=row.end_of_text,
        digest=row.stored_file.digest,
        created=row.created,
        created_by=row.created_by_name,
    )
