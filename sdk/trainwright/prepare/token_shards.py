"""Token shards: from a chunk of documents and its mask to two files of token ids, for training and for validation.

Each chunk is an independent job for any worker. Its shards are a pure function of its documents, its mask, the tokenizer and
the split, and get their names by an atomic rename: a killed worker leaves no partial shards, and repeating its job gives the
same bytes. ``build_manifest`` then describes all shards in the order of the chunks.

    chunks + masks ─┬─ sample_texts ───▶ texts for a tokenizer
                    └─ write_chunk_shards ─▶ train-00003.bin, validation-00003.bin   (for each)
                       build_manifest ─▶ manifest.json

``prepare_folder`` does all of this, including reading and curating, in the calling process.
"""

from __future__ import annotations

import hashlib
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
from trainwright.contracts.curation import CurationSpec
from trainwright.contracts.data_spec import DataSpec, TokenizerKind, TokenizerSpec
from trainwright.contracts.token_shards import (
    MANIFEST_NAME,
    TOKENIZER_NAME,
    Shard,
    ShardManifest,
    ShardSplit,
    TokenType,
)
from trainwright.durable_files import SHARED, open_durably
from trainwright.prepare.chunks import REJECTED_LISTED, chunk_name, read_chunk, write_chunks
from trainwright.prepare.curate import CurationSource, curate, length_histogram
from trainwright.prepare.documents import (
    Document,
    Rejected,
    Source,
    UnusableDataError,
    is_validation,
    sample_rank,
)
from trainwright.prepare.encode import Encoder, make_encoder
from trainwright.prepare.sniff import sniff
from trainwright.prepare.tokenizer import byte_tokenizer, end_of_text_id, tokenizer_bytes, train_bpe

BATCH_CHARACTERS = 2**20
"""Characters that are encoded at once. A job can be cancelled between two batches."""


SAMPLE_BYTES = 64 * 2**20
"""Most UTF-8 bytes in the sample that a tokenizer is trained on."""
SAMPLE_CHUNKS = 32
"""Most chunks that the sample is drawn from, so that sampling takes seconds for any dataset."""
TAIL_PART = 100
"""1 of this many tokens is held out if no document was."""
BLOCK_BYTES = 2**20

KEEP_ALL = CurationSpec()

ChunkAndMask = tuple[Path, bytes | None]


class Cancelled(Exception):  # noqa: N818 - nothing went wrong
    """The job was cancelled, and left no files."""


class ChunkShards(Envelope):
    """The shards of one chunk."""

    number: int
    train: Shard
    validation: Shard
    lengths: list[HistogramBin] = []
    """Documents by number of tokens, without the end of text, in bins up to powers of two."""

    @property
    def documents(self) -> int:
        return self.train.documents + self.validation.documents

    @property
    def tokens(self) -> int:
        return self.train.tokens + self.validation.tokens


def sample_texts(chunks: Sequence[ChunkAndMask], validation_fraction: float) -> Iterator[str]:
    """Kept training texts of at most ``SAMPLE_BYTES``: chunks chosen by a hash of their index, documents by a hash of their text."""
    chosen = _chosen(chunks)
    total = sum(len(text.encode()) for text in _training_texts(chosen, validation_fraction))
    share, left = SAMPLE_BYTES / max(total, 1), SAMPLE_BYTES
    for text in _training_texts(chosen, validation_fraction):
        size = len(text.encode())
        if sample_rank(text) < share and size <= left:
            left -= size
            yield text


def write_chunk_shards(
    path: Path,
    mask: bytes | None,
    number: int,
    encoder: Encoder,
    spec: TokenizerSpec,
    end_of_text: int,
    validation_fraction: float,
    folder: Path,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> ChunkShards:
    """Write the two shards of one chunk to ``folder``. Repeating it gives the same bytes.

    Raises:
        Cancelled: ``is_cancelled`` returned true; no files were left.
    """
    token_type = TokenType.for_vocabulary(spec.size)
    lengths: list[int] = []
    with (
        ShardWriter(folder / f"train-{number:05d}.bin", token_type, end_of_text) as train,
        ShardWriter(folder / f"validation-{number:05d}.bin", token_type, end_of_text) as validation,
    ):
        for texts in _batches(read_chunk(path, mask)):
            if is_cancelled():
                raise Cancelled
            for text, tokens in zip(texts, encoder.encode(texts), strict=True):
                (validation if is_validation(text, validation_fraction) else train).add(tokens)
                lengths.append(len(tokens))
    return ChunkShards(
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
    results: Sequence[ChunkShards],
) -> ShardManifest:
    """Describe a preparation. Empty shards are left out, so the validation split may be empty.

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


def split_validation_tail(
    manifest: ShardManifest, folder: Path, is_cancelled: Callable[[], bool] = lambda: False
) -> tuple[ShardManifest, list[Path]]:
    """Hold out the last 1 % of the tokens, at least one, if no document fell into the validation split.

    Tokens keep their order and number. A document that is split counts where its end is. New shards are written to
    ``folder``, and existing ones are not changed, so repeating it gives the same result.

    Returns:
        The new manifest and its new files, in order; the given manifest and no files if there is nothing to split.

    Raises:
        Cancelled: ``is_cancelled`` returned true before a shard was split.
    """
    left = _tail_tokens(manifest)
    if not left:
        return manifest, []
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


def shards_of_tail(manifest: ShardManifest) -> list[Shard]:
    """The shards that `split_validation_tail` reads."""
    left, found = _tail_tokens(manifest), list[Shard]()
    for shard in reversed(manifest.train.shards):
        if left <= 0:
            break
        found.append(shard)
        left -= shard.tokens
    return found


def _tail_tokens(manifest: ShardManifest) -> int:
    """Tokens to hold out from the end; 0 if the validation split has some, or is not asked for."""
    total = manifest.train.tokens
    if manifest.validation.tokens or not manifest.validation_fraction or total < 2:
        return 0
    return max(1, total // TAIL_PART)


def prepare_folder(
    sources: Sequence[Source], data: DataSpec, folder: Path, curation: CurationSpec = KEEP_ALL
) -> tuple[ShardManifest, list[Rejected]]:
    """Prepare data in one call: write tokenizer, shards and finally the manifest to ``folder``.

    Raises:
        UnusableDataError: a file cannot be read, too many rows are not documents, or there is nothing to train on.
    """
    assert not curation.mix and not data.tokenizer.has_source, (
        "mixtures and tokenizers of other datasets need a server"
    )
    _check_names(sources)
    folder.mkdir(parents=True, exist_ok=True)
    spec, fraction = data.tokenizer, data.validation_fraction
    with tempfile.TemporaryDirectory(prefix="chunks-") as working:
        paths, rejected = _read_all(sources, curation, Path(working))
        masks: list[bytes] = []
        curate([CurationSource(paths)], curation, lambda _, mask: masks.append(mask), folder=Path(working))
        chunks = list(zip(paths, masks, strict=True))
        tokenizer = _tokenizer(spec, chunks, fraction)
        content = tokenizer_bytes(tokenizer)
        (folder / TOKENIZER_NAME).write_bytes(content)
        encoder, end_of_text = make_encoder(tokenizer), end_of_text_id(tokenizer)
        results = [
            write_chunk_shards(path, mask, number, encoder, spec, end_of_text, fraction, folder)
            for number, (path, mask) in enumerate(chunks)
        ]
    digest = hashlib.sha256(content).hexdigest()
    manifest, _ = split_validation_tail(build_manifest(digest, end_of_text, spec, fraction, results), folder)
    if manifest.train.tokens < 2:
        raise UnusableDataError("There is nothing to train on: the curation keeps no document of the files.")
    (folder / MANIFEST_NAME).write_text(manifest.model_dump_json(indent=1))
    return manifest, rejected


def split_of(shards: Sequence[Shard]) -> ShardSplit:
    """A split of all shards that are not empty."""
    kept = [shard for shard in shards if shard.tokens]
    return ShardSplit(
        documents=sum(shard.documents for shard in kept),
        tokens=sum(shard.tokens for shard in kept),
        shards=kept,
    )


def _chosen(chunks: Sequence[ChunkAndMask]) -> list[ChunkAndMask]:
    places = sorted(range(len(chunks)), key=lambda place: sample_rank(f"piece {place}"))[:SAMPLE_CHUNKS]
    return [chunks[place] for place in sorted(places)]


def _training_texts(chunks: Sequence[ChunkAndMask], validation_fraction: float) -> Iterator[str]:
    for path, mask in chunks:
        for document in read_chunk(path, mask):
            if not is_validation(document.text, validation_fraction):
                yield document.text


def _part(manifest: ShardManifest, folder: Path, shard: Shard, first: int, tokens: int, name: str) -> Shard:
    """Copy part of a shard to a new shard."""
    width = manifest.token_type.bytes_per_token
    with (
        (folder / shard.name).open("rb") as file,
        ShardWriter(folder / name, manifest.token_type, manifest.end_of_text) as writer,
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


def _read_all(
    sources: Sequence[Source], curation: CurationSpec, folder: Path
) -> tuple[list[Path], list[Rejected]]:
    """Chunks of all sources, and their rejected rows."""
    paths: list[Path] = []
    rejected: list[Rejected] = []
    documents, rejected_count = 0, 0
    for source in sources:
        for chunk in write_chunks(source, sniff(source), curation.read, folder, None, len(paths)):
            documents += chunk.documents
            rejected_count += chunk.rejected_count
            rejected += chunk.rejected[: REJECTED_LISTED - len(rejected)]
            paths += [folder / chunk_name(chunk.number)] if chunk.documents else []
    if rejected_count > curation.rejected_limit * (documents + rejected_count):
        first = "; ".join(f"line {row.line:,} of {row.file} {row.reason}" for row in rejected[:3])
        raise UnusableDataError(
            f"{rejected_count:,} of {documents + rejected_count:,} documents could not be read, more than the limit of "
            f"{100 * curation.rejected_limit:g} %. First: {first}. Fix the files."
        )
    return paths, rejected


def _tokenizer(spec: TokenizerSpec, chunks: Sequence[ChunkAndMask], validation_fraction: float) -> Tokenizer:
    if spec.kind is TokenizerKind.BYTES:
        return byte_tokenizer()
    return train_bpe(sample_texts(chunks, validation_fraction), spec.size)


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
class ShardWriter:
    """Writes one shard, which gets its name when it is complete."""

    path: Path
    token_type: TokenType
    end_of_text: int
    documents: int = 0
    bytes: int = 0
    _hash: hashlib._Hash = field(default_factory=hashlib.sha256)
    _file: BinaryIO = field(init=False)

    def __enter__(self) -> Self:
        self._writing = open_durably(self.path, SHARED)
        self._file = self._writing.__enter__()
        return self

    def add(self, tokens: NDArray[np.uint32]) -> None:
        """Append a document's tokens and the end of text."""
        self._append(np.append(tokens, np.uint32(self.end_of_text)))
        self.documents += 1

    def add_tokens(self, tokens: NDArray[np.unsignedinteger]) -> None:
        """Append tokens, which include ends of text."""
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
        self._writing.__exit__(kind, error, trace)

    @property
    def shard(self) -> Shard:
        return Shard(
            name=self.path.name,
            digest=self._hash.hexdigest(),
            bytes=self.bytes,
            tokens=self.bytes // self.token_type.bytes_per_token,
            documents=self.documents,
        )
