"""Shards: from a slice of documents to two files of token ids, one for training and one for validation.

Work goes slice by slice, each an independent message to any worker. What a slice gives is a pure function of its
bytes, the tokenizer and the split, and appears by a rename: a worker that is killed leaves nothing, and repeating its
slice gives the same bytes. ``build_manifest`` then describes the whole in the plan's order.

    sources ─ plan_slices ─▶ slices ─┬─ train_tokenizer ─▶ tokenizer.json
                                     └─ tokenize_slice ───▶ train-00003.bin, validation-00003.bin   (for each)
                                        build_manifest ───▶ manifest.json
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import numpy as np
from tokenizers import Tokenizer

from trainwright.contracts.base import Envelope
from trainwright.contracts.run_spec import DataSpec, TokenizerSpec
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
    Slice,
    Source,
    count_lines,
    is_validation,
    plan_slices,
    read_documents,
)
from trainwright.prepare.tokenizer import end_of_text_id, tokenizer_bytes, train_tokenizer

REJECTED_LISTED = 1_000
"""Rejected lines that one slice lists; all are counted."""
BATCH_CHARACTERS = 2**20
"""Text handed to the tokenizer at once."""
PIECE_CHARACTERS = 2**16
"""Longer documents are encoded in pieces: the tokenizer needs a hundred bytes and more for each token in hand."""


class SliceResult(Envelope):
    """What one slice gave."""

    part: Slice
    lines: int
    train: Shard
    validation: Shard
    rejected: list[Rejected] = []
    """The first ones, their lines counted from the slice's first."""

    rejected_count: int = 0

    @property
    def documents(self) -> int:
        return self.train.documents + self.validation.documents


def tokenize_slice(
    source: Source,
    part: Slice,
    tokenizer: Tokenizer,
    spec: TokenizerSpec,
    validation_fraction: float,
    folder: Path,
) -> SliceResult:
    """Write the two shards of one slice into ``folder``; repeating it gives the same bytes."""
    end_of_text = end_of_text_id(tokenizer)
    token_type = TokenType.for_vocabulary(spec.size)
    rejected: list[Rejected] = []
    rejected_count = 0
    with (
        _ShardWriter(folder / f"train-{part.index:05d}.bin", token_type, end_of_text) as train,
        _ShardWriter(folder / f"validation-{part.index:05d}.bin", token_type, end_of_text) as validation,
    ):
        for batch in _batches(read_documents(source, part)):
            listed = [item for item in batch if isinstance(item, Rejected)]
            rejected_count += len(listed)
            rejected += listed[: REJECTED_LISTED - len(rejected)]
            texts = [item.text for item in batch if isinstance(item, Document)]
            for text, tokens in zip(texts, _encode(tokenizer, texts), strict=True):
                (validation if is_validation(text, validation_fraction) else train).add(tokens)
    return SliceResult(
        part=part,
        lines=count_lines(source, part),
        train=train.shard,
        validation=validation.shard,
        rejected=rejected,
        rejected_count=rejected_count,
    )


def build_manifest(
    tokenizer: Tokenizer, spec: TokenizerSpec, validation_fraction: float, results: Sequence[SliceResult]
) -> ShardManifest:
    """Describe a whole preparation; empty shards are left out, and so may be the whole validation split."""
    ordered = sorted(results, key=lambda result: result.part.index)
    return ShardManifest(
        tokenizer=spec,
        end_of_text=end_of_text_id(tokenizer),
        token_type=TokenType.for_vocabulary(spec.size),
        tokenizer_digest=hashlib.sha256(tokenizer_bytes(tokenizer)).hexdigest(),
        validation_fraction=validation_fraction,
        train=_split([result.train for result in ordered]),
        validation=_split([result.validation for result in ordered]),
    )


def rejected_lines(results: Sequence[SliceResult]) -> list[Rejected]:
    """The rejected lines that the slices listed, numbered within their files."""
    found: list[Rejected] = []
    lines_before: dict[str, int] = {}
    for result in sorted(results, key=lambda result: result.part.index):
        before = lines_before.get(result.part.file, 0)
        found += [item.model_copy(update={"line": before + item.line}) for item in result.rejected]
        lines_before[result.part.file] = before + result.lines
    return found


def prepare_folder(
    sources: Sequence[Source], data: DataSpec, folder: Path
) -> tuple[ShardManifest, list[Rejected]]:
    """Do the whole preparation here and now: tokenizer, shards and, last, the manifest in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    slices = plan_slices(sources)
    tokenizer = train_tokenizer(sources, slices, data.tokenizer, data.validation_fraction)
    (folder / TOKENIZER_NAME).write_bytes(tokenizer_bytes(tokenizer))
    by_name = {source.name: source for source in sources}
    results = [
        tokenize_slice(by_name[part.file], part, tokenizer, data.tokenizer, data.validation_fraction, folder)
        for part in slices
    ]
    manifest = build_manifest(tokenizer, data.tokenizer, data.validation_fraction, results)
    (folder / MANIFEST_NAME).write_text(manifest.model_dump_json(indent=1))
    return manifest, rejected_lines(results)


def _split(shards: Sequence[Shard]) -> ShardSplit:
    kept = [shard for shard in shards if shard.tokens]
    return ShardSplit(
        documents=sum(shard.documents for shard in kept),
        tokens=sum(shard.tokens for shard in kept),
        shards=kept,
    )


def _batches(items: Iterator[Document | Rejected]) -> Iterator[list[Document | Rejected]]:
    batch: list[Document | Rejected] = []
    characters = 0
    for item in items:
        batch.append(item)
        characters += len(item.text) if isinstance(item, Document) else 1
        if characters >= BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    yield batch


def _encode(tokenizer: Tokenizer, texts: Sequence[str]) -> Iterator[list[int]]:
    """Token ids of each text."""
    pieces = [
        text[start : start + PIECE_CHARACTERS]
        for text in texts
        for start in range(0, len(text), PIECE_CHARACTERS)
    ]
    encoded = iter(tokenizer.encode_batch_fast(pieces, add_special_tokens=False))
    for text in texts:
        yield [token for _ in range(0, len(text), PIECE_CHARACTERS) for token in next(encoded).ids]


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

    def add(self, tokens: list[int]) -> None:
        """Append a document's tokens and the end of text."""
        content = np.array(
            [*tokens, self.end_of_text], dtype=f"<u{self.token_type.bytes_per_token}"
        ).tobytes()
        self._file.write(content)
        self._hash.update(content)
        self.documents += 1
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
