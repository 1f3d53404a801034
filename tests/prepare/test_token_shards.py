"""Shards depend only on chunks, masks, tokenizer and split, and decoding their tokens gives every text."""

import json
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from trainwright.contracts.curation import CurationSpec, FilterRules, ReadSpec
from trainwright.contracts.data_spec import DataSpec, TokenizerKind, TokenizerSpec
from trainwright.contracts.token_shards import ShardManifest, ShardSplit
from trainwright.prepare import chunks, token_shards
from trainwright.prepare.documents import Source, UnusableDataError, is_validation
from trainwright.prepare.encode import make_encoder
from trainwright.prepare.sniff import sniff
from trainwright.prepare.token_shards import (
    Cancelled,
    ChunkShards,
    build_manifest,
    prepare_folder,
    sample_texts,
    split_validation_tail,
    write_chunk_shards,
)
from trainwright.prepare.tokenizer import byte_tokenizer, end_of_text_id

BYTES = TokenizerSpec(kind=TokenizerKind.BYTES)
BPE = TokenizerSpec(vocabulary=400)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Source:
    """Two hundred documents that fill several chunks, and two invalid lines."""
    monkeypatch.setattr(chunks, "CHUNK_DOCUMENTS", 40)
    draw = random.Random(1)
    words = ["grün", "red", "<|endoftext|>", "blue-ish", "\U0001f98a", "def f(x):\n\treturn x", "  "]
    lines = [json.dumps({"text": " ".join(draw.choices(words, k=30))}) for _ in range(200)]
    path = tmp_path / "object"
    path.write_text("\n".join([*lines[:7], "oops", *lines[7:57], "oops", *lines[57:]]))
    return Source("texts.jsonl", path)


def _texts(source: Source) -> list[str]:
    return [json.loads(line)["text"] for line in source.path.read_text().splitlines() if line != "oops"]


def _tokens(folder: Path, manifest: ShardManifest, split: ShardSplit) -> np.ndarray:
    dtype = f"<u{manifest.token_type.bytes_per_token}"
    empty = np.zeros(0, dtype)
    tokens = np.concatenate([empty, *(np.fromfile(folder / shard.name, dtype) for shard in split.shards)])
    assert len(tokens) == split.tokens == sum(shard.tokens for shard in split.shards)
    return tokens


def _documents(folder: Path, manifest: ShardManifest, split: ShardSplit) -> list[str]:
    whole = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokens = _tokens(folder, manifest, split)
    ends = np.flatnonzero(tokens == manifest.end_of_text)
    assert ends[-1] == len(tokens) - 1
    found = np.split(tokens, ends + 1)[:-1]
    return [whole.decode(document[:-1].tolist(), skip_special_tokens=False) for document in found]


@pytest.mark.parametrize("spec", [BYTES, BPE], ids=["bytes", "bpe"])
def test_every_kept_document_can_be_decoded_from_its_split(
    tmp_path: Path, source: Source, spec: TokenizerSpec
) -> None:
    data = DataSpec(dataset="x", tokenizer=spec, validation_fraction=0.2)
    curation = CurationSpec(drop_duplicates=True, rules=FilterRules(min_characters=200))
    manifest, rejected = prepare_folder([source], data, tmp_path / "out", curation)
    texts = [text for text in dict.fromkeys(_texts(source)) if len(text) >= 200]
    assert 20 < len(texts) < 200
    held = [text for text in texts if is_validation(text, 0.2)]
    assert _documents(tmp_path / "out", manifest, manifest.validation) == held
    assert _documents(tmp_path / "out", manifest, manifest.train) == [
        text for text in texts if text not in held
    ]
    assert manifest.train.documents + manifest.validation.documents == len(texts)
    assert len(manifest.train.shards) > 3
    assert [(row.file, row.line) for row in rejected] == [("texts.jsonl", 8), ("texts.jsonl", 59)]
    again, _ = prepare_folder([source], data, tmp_path / "again", curation)
    assert again == manifest


def test_too_many_rejected_rows_and_nothing_to_train_on_are_refused(tmp_path: Path, source: Source) -> None:
    data = DataSpec(dataset="x", tokenizer=BYTES)
    with pytest.raises(
        UnusableDataError, match=r"2 of 202 documents .* limit of 0.5 %. First: line 8 of texts.jsonl"
    ):
        prepare_folder([source], data, tmp_path / "out", CurationSpec(rejected_limit=0.005))
    with pytest.raises(UnusableDataError, match="nothing to train on"):
        prepare_folder(
            [source], data, tmp_path / "out", CurationSpec(rules=FilterRules(min_characters=10**6))
        )
    with pytest.raises(UnusableDataError, match="two files have this name"):
        prepare_folder([source, source], data, tmp_path / "out")
    assert not (tmp_path / "out/manifest.json").exists()


@dataclass
class Chunks:
    paths: list[Path]

    def tokenize(
        self, number: int, folder: Path, mask: bytes | None = None, **options: object
    ) -> ChunkShards:
        folder.mkdir(exist_ok=True)
        tokenizer = byte_tokenizer()
        given = (make_encoder(tokenizer), BYTES, end_of_text_id(tokenizer), 0.2, folder)
        return write_chunk_shards(self.paths[number], mask, number, *given, **options)


@pytest.fixture
def written(tmp_path: Path, source: Source) -> Chunks:

    folder = tmp_path / "chunks"
    folder.mkdir()
    list(chunks.write_chunks(source, sniff(source), ReadSpec(field="text"), folder))
    return Chunks(sorted(folder.iterdir()))


def test_a_killed_or_cancelled_chunk_leaves_nothing_and_a_repetition_gives_the_same_bytes(
    tmp_path: Path, written: Chunks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_shards, "BATCH_CHARACTERS", 500)
    whole = written.tokenize(1, tmp_path / "whole")
    content = {path.name: path.read_bytes() for path in (tmp_path / "whole").iterdir()}
    again = tmp_path / "again"
    asked: list[bool] = []

    def is_cancelled() -> bool:
        asked.append(len(asked) == 3)
        return asked[-1]

    with pytest.raises(Cancelled):
        written.tokenize(1, again, is_cancelled=is_cancelled)
    assert asked == [False, False, False, True]
    assert not list(again.iterdir())

    def killed(text: str, fraction: float) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(token_shards, "is_validation", killed)
        written.tokenize(1, again)
    assert not list(again.iterdir())
    assert written.tokenize(1, again) == whole
    assert {path.name: path.read_bytes() for path in again.iterdir()} == content


def test_a_result_counts_documents_tokens_and_their_lengths(tmp_path: Path, written: Chunks) -> None:
    every = list(chunks.read_chunk(written.paths[0]))
    mask = bytes(number % 2 for number in range(len(every)))
    result = written.tokenize(0, tmp_path / "out", mask)
    sizes = [len(document.text.encode()) for document in every[::2]]
    assert (result.documents, result.tokens) == (len(sizes), sum(sizes) + len(sizes))
    assert sum(bin_.documents for bin_ in result.lengths) == len(sizes)
    for bin_ in result.lengths:
        assert bin_.documents == sum(bin_.upto // 2 < size <= bin_.upto for size in sizes)


def test_a_document_counts_once_even_if_its_tokens_contain_the_end_of_text(
    tmp_path: Path, written: Chunks
) -> None:
    result = write_chunk_shards(
        written.paths[0], None, 0, make_encoder(byte_tokenizer()), BYTES, ord("e"), 0.2, tmp_path
    )
    assert result.documents == chunks.count_documents(written.paths[0])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.lists(st.integers(0, 130), max_size=4), min_size=1, max_size=5),
    fraction=st.sampled_from([0.0, 0.01]),
)
def test_the_held_out_end_is_one_percent_and_no_token_moves(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[list[int]], fraction: float
) -> None:
    folder = tmp_path_factory.mktemp("tail")
    manifest = _made(folder, sizes, fraction)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    tokens = _tokens(folder, manifest, manifest.train)
    cut, written = split_validation_tail(manifest, folder)
    if fraction == 0.0 or len(tokens) < 2:
        assert (cut, written) == (manifest, [])
        return
    train, tail = _tokens(folder, cut, cut.train), _tokens(folder, cut, cut.validation)
    assert np.array_equal(np.concatenate([train, tail]), tokens)
    assert len(tail) == max(1, len(tokens) // 100)
    assert cut.validation_from_tail
    assert cut.train.documents + cut.validation.documents == manifest.train.documents
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert {name: after[name] for name in before} == before, "existing files are unchanged"
    assert {path.name for path in written} == after.keys() - before.keys()
    assert split_validation_tail(manifest, folder) == (cut, written)
    assert split_validation_tail(cut, folder) == (cut, []), "a validation split exists now"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == after


def _made(folder: Path, sizes: list[list[int]], fraction: float) -> ShardManifest:
    """A manifest of shards with documents of these token counts, all for training."""
    results = []
    for number, documents in enumerate(sizes):
        with (
            token_shards.ShardWriter(
                folder / f"train-{number:05d}.bin", token_shards.TokenType.UINT16, 256
            ) as train,
            token_shards.ShardWriter(
                folder / f"validation-{number:05d}.bin", token_shards.TokenType.UINT16, 256
            ) as validation,
        ):
            for size in documents:
                train.add(np.arange(size, dtype=np.uint32))
        results.append(ChunkShards(number=number, train=train.shard, validation=validation.shard))
    return build_manifest("0" * 64, 256, BYTES, fraction, list(reversed(results)))


def test_a_folder_with_an_empty_split_holds_out_its_end(tmp_path: Path) -> None:
    source = Source("one.txt", tmp_path / "one")
    source.path.write_text("a single short document " * 30)
    manifest, rejected = prepare_folder([source], DataSpec(dataset="x", tokenizer=BYTES), tmp_path / "out")
    assert (manifest.train.tokens, manifest.validation.tokens, manifest.validation_from_tail) == (
        714,
        7,
        True,
    )
    assert bytes(_tokens(tmp_path / "out", manifest, manifest.train).astype("u1")).startswith(
        b"a single short"
    )
    assert not rejected
    saved = ShardManifest.model_validate_json((tmp_path / "out/manifest.json").read_bytes())
    assert saved == manifest


def test_the_sample_is_bounded_reproducible_and_of_kept_training_texts(
    written: Chunks, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [
        (path, bytes(number % 2 for number in range(chunks.count_documents(path)))) for path in written.paths
    ]
    kept = [document.text for path, mask in given for document in chunks.read_chunk(path, mask)]
    training = [text for text in kept if not is_validation(text, 0.2)]
    assert list(sample_texts(given, 0.2)) == training, "all texts if they are few"
    monkeypatch.setattr(token_shards, "SAMPLE_BYTES", 4_000)
    monkeypatch.setattr(token_shards, "SAMPLE_CHUNKS", 3)
    sample = list(sample_texts(given, 0.2))
    assert 1_500 < sum(len(text.encode()) for text in sample) <= 4_000
    assert set(sample) < set(training)
    assert sample == list(sample_texts(given, 0.2))


def test_the_vocabulary_has_the_requested_size_even_if_bpe_found_fewer_tokens(tmp_path: Path) -> None:
    source = Source("small.txt", tmp_path / "small")
    source.path.write_text("ab ab ab")
    spec = TokenizerSpec(vocabulary=70_000)
    manifest, _ = prepare_folder([source], DataSpec(dataset="x", tokenizer=spec), tmp_path / "out")
    assert manifest.tokenizer.size == 70_000
    assert manifest.token_type.bytes_per_token == 4
    assert Tokenizer.from_file(str(tmp_path / "out/tokenizer.json")).get_vocab_size() < 300


def test_transformers_reads_the_tokenizer(tmp_path: Path, source: Source) -> None:
    prepare_folder([source], DataSpec(dataset="x", tokenizer=BPE), tmp_path / "out")
    theirs = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "out/tokenizer.json"))
    ours = Tokenizer.from_file(str(tmp_path / "out/tokenizer.json"))
    text = "grün and def f(x):\n\treturn x \U0001f98a"
    assert theirs(text)["input_ids"] == ours.encode(text).ids
    assert theirs.decode(theirs(text)["input_ids"]) == text
