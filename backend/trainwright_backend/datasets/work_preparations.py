"""The work behind a preparation: plan it, tokenise its slices, complete it. Each a step that one worker does.

A slice is one piece of the version with what its recipe keeps of it. Repeating a step gives the same bytes, so a killed
worker costs its step and no more.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import or_, select, update

from trainwright.contracts.api.datasets import PreparationState, VersionState
from trainwright.contracts.data_spec import TokenizerKind, TokenizerSpec
from trainwright.contracts.shards import TOKENIZER_NAME
from trainwright.prepare.documents import UnusableDataError
from trainwright.prepare.encode import Encoder, load_encoder
from trainwright.prepare.shards import sample_texts, tokenize_piece
from trainwright.prepare.tokenizer import (
    byte_tokenizer,
    end_of_text_id,
    load_tokenizer,
    tokenizer_bytes,
    train_bpe,
)
from trainwright_backend.core.db import Database, Write, now
from trainwright_backend.core.storage import LocalStore
from trainwright_backend.datasets.leases import (
    MOST_FAILURES,
    MOST_LOST_LEASES,
    Lease,
    is_free,
    take,
    take_slice,
)
from trainwright_backend.datasets.messages import UNPREPARED, Work, send_step
from trainwright_backend.datasets.pieces import mask_key, rows_of
from trainwright_backend.datasets.preparations import object_folder
from trainwright_backend.datasets.readings import piece_key
from trainwright_backend.datasets.resolution import tokenizer_file
from trainwright_backend.datasets.steps import Step, Unwanted, end
from trainwright_backend.datasets.tables import Preparation, PreparationSlice, VersionPiece


@dataclass(frozen=True)
class KeptPiece:
    """A piece of the version of which documents are kept."""

    number: int
    """Within the version; slices and shards are named by it."""

    piece_key: str
    mask_key: str
    kept: int


@dataclass(frozen=True)
class PreparationStep(Step):
    """What all steps of a preparation need."""

    tokenizer: TokenizerSpec
    validation_fraction: float


@dataclass(frozen=True)
class Plan(PreparationStep):
    """Make or copy the tokenizer, and lay out the slices."""

    pieces: list[KeptPiece]
    tokenizer_key: str | None
    """Where the tokenizer lies that is copied; None when it is made, or gone."""


@dataclass(frozen=True)
class Tokenize(PreparationStep):
    """Turn one slice into shards."""

    piece: KeptPiece


@dataclass(frozen=True)
class Complete(PreparationStep):
    """Write the manifest."""


@dataclass(frozen=True)
class PiecesAndMasks(Sequence[tuple[Path, bytes | None]]):
    """Pieces with masks that are read when they are asked for: a sample asks for few."""

    store: LocalStore
    pieces: Sequence[KeptPiece]

    def __len__(self) -> int:
        return len(self.pieces)

    def __getitem__(self, index: int) -> tuple[Path, bytes | None]:  # type: ignore[override]
        piece = self.pieces[index]
        return self.store.path_of(piece.piece_key), self.store.read(piece.mask_key)


def take_preparation(session: Write, preparation_id: UUID) -> PreparationStep | None:
    """Take the lease of the next step that nobody works on."""
    preparation = session.get(Preparation, preparation_id, with_for_update=True)
    if preparation is None or preparation.state not in UNPREPARED:
        return None
    if preparation.version.state == VersionState.FAILED:  # it failed while the preparation was made
        end(session, preparation, preparation.version.error or "", repeatable=False)
        return None
    if preparation.version.state != VersionState.READY:
        return None
    if preparation.shards_total is None:
        return _take_plan(session, preparation)
    slice_step = _take_slice(session, preparation)
    if slice_step is not None:
        return slice_step
    if preparation.shards_done == preparation.shards_total and preparation.state == PreparationState.WORKING:
        lease = _take_whole(session, preparation)
        return None if lease is None else Complete(**_common(preparation, lease))
    return None


def plan(database: Database, store: LocalStore, step: Plan, is_unwanted: Callable[[], bool]) -> None:
    """Write the tokenizer and the rows of the slices.

    While a tokenizer is made, its sample can be interrupted; the merging of pairs that follows cannot.

    Raises:
        Unwanted: nobody wants it any more.
    """
    content = _tokenizer_content(store, step, is_unwanted)
    if is_unwanted():
        raise Unwanted
    store.write(f"{step.folder}/{TOKENIZER_NAME}", content)
    with database.write() as session:
        planned = session.change(
            update(Preparation)
            .where(*step.lease.conditions(), Preparation.state.in_(UNPREPARED))
            .values(
                state=PreparationState.WORKING,
                shards_total=len(step.pieces),
                tokenizer_bytes=len(content),
                failures=0,
                lease=None,
                leased_until=None,
                touched=now(),
            )
        )
        if not planned:
            raise Unwanted
        session.add_all(
            PreparationSlice(
                preparation_id=step.lease.owner_id, number=piece.number, plan={"documents": piece.kept}
            )
            for piece in step.pieces
        )
        send_step(session, Work.PREPARE, step.lease.owner_id, len(step.pieces))


def tokenize(database: Database, store: LocalStore, step: Tokenize, is_unwanted: Callable[[], bool]) -> None:
    """Write the shards of one slice."""
    encoder, end_of_text = _encoder(store.path_of(f"{step.folder}/{TOKENIZER_NAME}"))
    with store.working_folder() as folder:
        result = tokenize_piece(
            store.path_of(step.piece.piece_key),
            store.read(step.piece.mask_key),
            step.piece.number,
            encoder,
            step.tokenizer,
            end_of_text,
            step.validation_fraction,
            folder,
            is_unwanted,
        )
        for shard in (result.train, result.validation):
            if shard.tokens:
                stored = store.put_file(f"{step.folder}/{shard.name}", folder / shard.name)
                if stored.digest != shard.digest:
                    raise OSError(f"{shard.name} was not read back as it was written")
    with database.write() as session:
        # The preparation before its slice, as all who take both do.
        session.change(
            update(Preparation)
            .where(Preparation.id == step.lease.owner_id)
            .values(
                shards_done=Preparation.shards_done + 1,
                tokens_done=Preparation.tokens_done + result.train.tokens + result.validation.tokens,
                failures=0,
                touched=now(),
            )
        )
        done = session.change(
            update(PreparationSlice)
            .where(*step.lease.conditions(), PreparationSlice.done.is_(False))
            .values(done=True, result=result.model_dump(mode="json"), lease=None, leased_until=None)
        )
        if not done:
            raise Unwanted
        send_step(session, Work.PREPARE, step.lease.owner_id)


def _tokenizer_content(store: LocalStore, step: Plan, is_unwanted: Callable[[], bool]) -> bytes:
    if step.tokenizer.has_source:
        if step.tokenizer_key is None:
            raise UnusableDataError(
                f"The tokenizer of {step.tokenizer.source} was deleted before it was copied. Choose another one."
            )
        return store.read(step.tokenizer_key)
    if step.tokenizer.kind is TokenizerKind.BYTES:
        return tokenizer_bytes(byte_tokenizer())
    texts = sample_texts(PiecesAndMasks(store, step.pieces), step.validation_fraction)
    return tokenizer_bytes(train_bpe(_while_wanted(texts, is_unwanted), step.tokenizer.size))


def _while_wanted(texts: Iterator[str], is_unwanted: Callable[[], bool]) -> Iterator[str]:
    for text in texts:
        if is_unwanted():
            raise Unwanted
        yield text


@lru_cache(maxsize=2)
def _encoder(path: Path) -> tuple[Encoder, int]:
    """The encoder of a preparation, kept from slice to slice; its file never changes."""
    return load_encoder(path), end_of_text_id(load_tokenizer(path))


def _take_plan(session: Write, preparation: Preparation) -> Plan | None:
    lease = _take_whole(session, preparation)
    if lease is None:
        return None
    spec = TokenizerSpec.model_validate(preparation.tokenizer)
    file = tokenizer_file(session, preparation) if spec.has_source else None
    return Plan(
        **_common(preparation, lease),
        pieces=[
            _kept_piece(preparation, row) for row in rows_of(session, preparation.version_id) if row.kept
        ],
        tokenizer_key=None if file is None else file.object_key,
    )


def _take_whole(session: Write, preparation: Preparation) -> Lease | None:
    if not is_free(preparation):
        return None
    if preparation.lease is not None:
        preparation.failures += 1
        if preparation.failures >= MOST_FAILURES:
            end(session, preparation, _lost("this preparation"), repeatable=True)
            return None
    lease = take(preparation)
    session.flush()
    return lease


def _take_slice(session: Write, preparation: Preparation) -> Tokenize | None:
    free = or_(PreparationSlice.lease.is_(None), PreparationSlice.leased_until < now())
    row = session.scalar(
        select(PreparationSlice)
        .where(PreparationSlice.preparation_id == preparation.id, PreparationSlice.done.is_(False), free)
        .order_by(PreparationSlice.number)
        .limit(1)
        .with_for_update(skip_locked=True)
    )
    if row is None:
        return None
    piece = session.get_one(VersionPiece, (preparation.version_id, row.number))
    if row.lease is not None:
        row.lost_leases += 1
        if row.lost_leases >= MOST_LOST_LEASES:
            first = f"documents {piece.first_document:,} to {piece.first_document + piece.documents - 1:,}"
            end(session, preparation, _lost(first), repeatable=True)
            return None
    lease = take_slice(row)
    preparation.touched = now()
    session.flush()
    return Tokenize(**_common(preparation, lease), piece=_kept_piece(preparation, piece))


def _lost(what: str) -> str:
    return (
        f"{MOST_LOST_LEASES} workers in a row died over {what}. See whether the machine of the workers runs out of "
        "memory, then ask for the preparation again, or submit a run, to go on."
    )


def _common(preparation: Preparation, lease: Lease) -> dict[str, Any]:
    return {
        "lease": lease,
        "folder": object_folder(preparation.team_id, preparation.digest),
        "tokenizer": TokenizerSpec.model_validate(preparation.tokenizer),
        "validation_fraction": preparation.validation_fraction,
    }


def _kept_piece(preparation: Preparation, row: VersionPiece) -> KeptPiece:
    return KeptPiece(
        number=row.number,
        piece_key=piece_key(preparation.team_id, row.reading_id, row.piece_number),
        mask_key=mask_key(preparation.team_id, preparation.version_id, row.number),
        kept=row.kept,
    )
