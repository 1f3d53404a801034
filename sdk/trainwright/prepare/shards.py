"""Shards: from a piece of documents and its mask to two files of token ids, one for training and one for validation.

Work goes piece by piece, each an independent step of any worker. What a piece gives is a pure function of its
documents, its mask, the tokenizer and the split, and appears by a rename: a worker that is killed leaves nothing under the
names of shards, and repeating its step gives the same bytes. ``build_manifest`` then describes the whole in the
pieces' order.

    pieces + masks ─┬─ sample_texts ───▶ texts for a tokenizer
                    └─ tokenize_piece ─▶ train-00003.bin, validation-00003.bin   (for each)
                       build_manifest ─▶ manifest.json

``prepare_folder`` does all of it, reading and survey included, here and now.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from trainwright.contracts.api.datasets import HistogramBin
from trainwright.contracts.base import Envelope
from trainwright.contracts.data_spec import DataSpec, TokenizerKind, TokenizerSpec
from trainwright.contracts.recipe import Recipe
from trainwright.contracts.shards import (
    MANIFEST_NAME,
    TOKENIZER_NAME,
    Shard,
    ShardManifest,
    ShardSplit,
    TokenType,
)
from trainwright.prepare.documents import (
    Document,
    Rejected,
    Source,
    UnusableDataError,
    is_validation,
    sample_rank,
)
from trainwright.prepare.encode import Encoder, make_encoder
from trainwright.prepare.pieces import REJECTED_LISTED, piece_name, read_piece, write_pieces
from trainwright.prepare.sniff import sniff
from trainwright.prepare.survey import SurveySource, length_histogram, survey
from trainwright.prepare.tokenizer import byte_tokenizer, end_of_text_id, tokenizer_bytes, train_bpe

BATCH_CHARACTERS = 2**20
"""Text handed to the encoder at once; between two batches a step can be cancelled."""


SAMPLE_BYTES = 64 * 2**20
"""Most UTF-8 in the sample on which a tokenizer is trained."""
SAMPLE_PIECES = 32
"""Most pieces that the sample is drawn from, so that choosing it takes seconds for any dataset."""
TAIL_PART = 100
"""One of so many tokens is held out where no document was."""
BLOCK_BYTES = 2**20

KEEP_ALL = Recipe()

PieceAndMask = tuple[Path, bytes | None]


class Cancelled(Exception):  # noqa: N818 - nothing went wrong
    """The step was told to end, and left nothing."""


class SliceResult(Envelope):
    """What one piece gave."""

    number: int
    train: Shard
    validation: Shard
    lengths: list[HistogramBin] = []
    """Documents by tokens, the end of text left out, up to powers of two."""

    @property
    def documents(self) -> int:
        return self.train.documents + self.validation.documents

    @property
    def tokens(self) -> int:
        return self.train.tokens + self.validation.tokens


def sample_texts(pieces: Sequence[PieceAndMask], validation_fraction: float) -> Iterator[str]:
    """Kept training texts of at most ``SAMPLE_BYTES``: pieces by a hash of their place, documents by one of their text."""
    chosen = _chosen(pieces)
    total = sum(len(text.encode()) for text in _training_texts(chosen, validation_fraction))
    share, left = SAMPLE_BYTES / max(total, 1), SAMPLE_BYTES
    for text in _training_texts(chosen, validation_fraction):
        size = len(text.encode())
        if sample_rank(text) < share and size <= left:
            left -= size
            yield text


def tokenize_piece(
    path: Path,
    mask: bytes | None,
    number: int,
    encoder: Encoder,
    spec: TokenizerSpec,
    end_of_text: int,
    validation_fraction: float,
    folder: Path,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> SliceResult:
    """Write the two shards of one piece into ``folder``; repeating it gives the same bytes.

    Raises:
        Cancelled: ``is_cancelled`` said so; nothing was left.
    """
    token_type = TokenType.for_vocabulary(spec.size)
    lengths: list[int] = []
    with (
        _ShardWriter(folder / f"train-{number:05d}.bin", token_type, end_of_text) as train,
        _ShardWriter(folder / f"validation-{number:05d}.bin", token_type, end_of_text) as validation,
    ):
        for texts in _batches(read_piece(path, mask)):
            if is_cancelled():
                raise Cancelled
            for text, tokens in zip(texts, encoder.encode(texts), strict=True):
                (validation if is_validation(text, validation_fraction) else train).add(tokens)
                lengths.append(len(tokens))
    return SliceResult(
        number=number,
        train=train.shard,
        validation=validation.shard,
        lengths=length_histogram(np.array(lengths, np.int64)),
    )


def build_manifest(
    tokenizer_digest: str,
    end_of_text: int,
    spec: TokenizerSpec,
    validation_fraction: float,
    results: Sequence[SliceResult],
) -> ShardManifest:
    """Describe a whole preparation; empty shards are left out, and so may be the whole validation split.

    Args:
        tokenizer_digest: SHA-256 of ``tokenizer.json``, in hex.
    """
    ordered = sorted(results, key=lambda result: result.number)
    return ShardManifest(
        tokenizer=spec,
        end_of_text=end_of_text,
        token_type=TokenType.for_vocabulary(spec.size),
        tokenizer_digest=tokenizer_digest,
        validation_fraction=validation_fraction,
        train=split_of([result.train for result in ordered]),
        validation=split_of([result.validation for result in ordered]),
    )


def cut_validation_tail(
    manifest: ShardManifest, folder: Path, is_cancelled: Callable[[], bool] = lambda: False
) -> tuple[ShardManifest, list[Path]]:
    """Hold out the last 1 % of the tokens, where no document fell into the validation split; at least one token.

    Tokens keep their order and number; the document that is cut counts where its end is. What changes is written into
    ``folder`` beside the shards, which stay as they are: repeating it gives the same.

    Returns:
        The new manifest and the new files, in its order; the very manifest and none when nothing is to be cut.

    Raises:
        Cancelled: ``is_cancelled`` said so before a shard was cut.
    """
    total = manifest.train.tokens
    if manifest.validation.tokens or not manifest.validation_fraction or total < 2:
        return manifest, []
    left = max(1, total // TAIL_PART)
    train, tail = list(manifest.train.shards), list[Shard]()
    while left:
        if is_cancelled():
            raise Cancelled
        shard = train.pop()
        taken = min(left, shard.tokens)
        left -= taken
        number = shard.name.removeprefix("train-")
        tail.insert(
            0, _part(manifest, folder, shard, shard.tokens - taken, taken, f"validation-tail-{number}")
        )
        if taken < shard.tokens:
            train.append(_part(manifest, folder, shard, 0, shard.tokens - taken, f"train-head-{number}"))
    written = [folder / shard.name for shard in (*train, *tail) if shard not in manifest.train.shards]
    changed = {"train": split_of(train), "validation": split_of(tail), "validation_from_tail": True}
    return manifest.model_copy(update=changed), written


def prepare_folder(
    sources: Sequence[Source], data: DataSpec, folder: Path, recipe: Recipe = KEEP_ALL
) -> tuple[ShardManifest, list[Rejected]]:
    """Do the whole preparation here and now: tokenizer, shards and, last, the manifest in ``folder``.

    Raises:
        UnusableDataError: a file cannot be read, too many of its rows give no document, or nothing is left to train on.
    """
    assert not recipe.mix and not data.tokenizer.has_source, "what is mixed or copied lies on a server"
    _check_names(sources)
    folder.mkdir(parents=True, exist_ok=True)
    spec, fraction = data.tokenizer, data.validation_fraction
    with tempfile.TemporaryDirectory(prefix="pieces-") as working:
        paths, rejected = _read_all(sources, recipe, Path(working))
        masks: list[bytes] = []
        survey([SurveySource(paths)], recipe, lambda _, mask: masks.append(mask), folder=Path(working))
        pieces = list(zip(paths, masks, strict=True))
        tokenizer = _tokenizer(spec, pieces, fraction)
        content = tokenizer_bytes(tokenizer)
        (folder / TOKENIZER_NAME).write_bytes(content)
        encoder, end_of_text = make_encoder(tokenizer), end_of_text_id(tokenizer)
        results = [
            tokenize_piece(path, mask, number, encoder, spec, end_of_text, fraction, folder)
            for number, (path, mask) in enumerate(pieces)
        ]
    digest = hashlib.sha256(content).hexdigest()
    manifest, _ = cut_validation_tail(build_manifest(digest, end_of_text, spec, fraction, results), folder)
    if manifest.train.tokens < 2:
        raise UnusableDataError("There is nothing to train on: the recipe keeps no document of the files.")
    (folder / MANIFEST_NAME).write_text(manifest.model_dump_json(indent=1))
    return manifest, rejected


def split_of(shards: Sequence[Shard]) -> ShardSplit:
    """The shards that hold anything, added up."""
    kept = [shard for shard in shards if shard.tokens]
    return ShardSplit(
        documents=sum(shard.documents for shard in kept),
        tokens=sum(shard.tokens for shard in kept),
        shards=kept,
    )


def _chosen(pieces: Sequence[PieceAndMask]) -> list[PieceAndMask]:
    places = sorted(range(len(pieces)), key=lambda place: sample_rank(f"piece {place}"))[:SAMPLE_PIECES]
    return [pieces[place] for place in sorted(places)]


def _training_texts(pieces: Sequence[PieceAndMask], validation_fraction: float) -> Iterator[str]:
    for path, mask in pieces:
        for document in read_piece(path, mask):
            if not is_validation(document.text, validation_fraction):
                yield document.text


def _part(manifest: ShardManifest, folder: Path, shard: Shard, first: int, tokens: int, name: str) -> Shard:
    """Copy a stretch of a shard into a shard of its own."""
    width = manifest.token_type.bytes_per_token
    with (
        (folder / shard.name).open("rb") as file,
        _ShardWriter(folder / name, manifest.token_type, manifest.end_of_text) as writer,
    ):
        file.seek(first * width)
        left = tokens * width
        while left:
            block = file.read(min(left, BLOCK_BYTES))
            if not block:
                raise OSError(f"{folder / shard.name} is shorter than its manifest says")
            writer.add_tokens(np.frombuffer(block, f"<u{width}"))
            left -= len(block)
    return writer.shard


def _check_names(sources: Sequence[Source]) -> None:
    names = [source.name for source in sources]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UnusableDataError(f"{twice}: two files have this name. Rename one of them.")


def _read_all(sources: Sequence[Source], recipe: Recipe, folder: Path) -> tuple[list[Path], list[Rejected]]:
    """Pieces of all sources, and the rejected rows that they list."""
    paths: list[Path] = []
    rejected: list[Rejected] = []
    documents, rejected_count = 0, 0
    for source in sources:
        for piece in write_pieces(source, sniff(source), recipe.read, folder, None, len(paths)):
            documents += piece.documents
            rejected_count += piece.rejected_count
            rejected += piece.rejected[: REJECTED_LISTED - len(rejected)]
            paths += [folder / piece_name(piece.number)] if piece.documents else []
    if rejected_count > recipe.rejected_limit * (documents + rejected_count):
        first = "; ".join(f"line {row.line:,} of {row.file} {row.reason}" for row in rejected[:3])
        raise UnusableDataError(
            f"{rejected_count:,} of {documents + rejected_count:,} documents could not be read, more than the limit of "
            f"{100 * recipe.rejected_limit:g} %. First: {first}. Mend the files."
        )
    return paths, rejected


def _tokenizer(spec: TokenizerSpec, pieces: Sequence[PieceAndMask], validation_fraction: float) -> Tokenizer:
    if spec.kind is TokenizerKind.BYTES:
        return byte_tokenizer()
    return train_bpe(sample_texts(pieces, validation_fraction), spec.size)


def _batches(documents: Iterator[Document]) -> Iterator[list[str]]:
    batch: list[str] = []
    characters = 0
    for document in documents:
        batch.append(document.text)
        characters += len(document.text)
        if characters >= BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


@dataclass
class _ShardWriter:
    """Writes one shard under a name of its own and gives it the real one when it is complete."""

    path: Path
    token_type: TokenType
    end_of_text: int
    documents: int = 0
    bytes: int = 0
    _hash: hashlib._Hash = field(default_factory=hashlib.sha256)
    _file: BinaryIO = field(init=False)

    def __enter__(self) -> Self:
        self._draft = self.path.with_name(f"{self.path.name}.tmp-{os.getpid()}")
        self._file = self._draft.open("wb")
        return self

    def add(self, tokens: NDArray[np.uint32]) -> None:
        """Append a document's tokens and the end of text."""
        self._append(np.append(tokens, np.uint32(self.end_of_text)))
        self.documents += 1

    def add_tokens(self, tokens: NDArray[np.unsignedinteger]) -> None:
        """Append tokens, ends of texts among them."""
        self._append(tokens)
        self.documents += int(np.count_nonzero(tokens == self.end_of_text))

    def _append(self, tokens: NDArray[np.unsignedinteger]) -> None:
        content = tokens.astype(f"<u{self.token_type.bytes_per_token}").tobytes()
        self._file.write(content)
        self._hash.update(content)
        self.bytes += len(content)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._file:
            if error is None:
                self._file.flush()
                os.fsync(self._file.fileno())
        if error is None:
            self._draft.rename(self.path)
        else:
            self._draft.unlink()

    @property
    def shard(self) -> Shard:
        return Shard(
            name=self.path.name,
            digest=self._hash.hexdigest(),
            bytes=self.bytes,
            tokens=self.bytes // self.token_type.bytes_per_token,
            documents=self.documents,
        )
