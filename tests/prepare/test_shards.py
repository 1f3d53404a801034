"""Shards are a pure function of the files, the tokenizer and the split, and every text comes back from its tokens."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from trainwright.contracts.run_spec import DataSpec, TokenizerKind, TokenizerSpec
from trainwright.contracts.shards import ShardManifest, ShardSplit
from trainwright.prepare import shards, tokenizer
from trainwright.prepare.documents import Source, is_validation, plan_slices
from trainwright.prepare.shards import (
    build_manifest,
    prepare_folder,
    rejected_lines,
    tokenize_slice,
)
from trainwright.prepare.tokenizer import (
    END_OF_TEXT,
    byte_tokenizer,
    load_tokenizer,
    save_tokenizer,
    train_tokenizer,
)

BYTES = TokenizerSpec(kind=TokenizerKind.BYTES)
BPE = TokenizerSpec(vocabulary=400)


@pytest.fixture
def source(tmp_path: Path) -> Source:
    draw = random.Random(1)
    words = ["grün", "red", "<|endoftext|>", "blue-ish", "\U0001f98a", "def f(x):\n\treturn x", "  "]
    path = tmp_path / "object"
    with path.open("w") as file:
        for number in range(200):
            file.write(
                "oops\n"
                if number % 50 == 7
                else json.dumps({"text": " ".join(draw.choices(words, k=30))}) + "\n"
            )
    return Source("texts.jsonl", path)


def _texts(source: Source) -> list[str]:
    return [json.loads(line)["text"] for line in source.path.read_text().splitlines() if line != "oops"]


def _prepare(source: Source, spec: TokenizerSpec, folder: Path, slice_bytes: int) -> ShardManifest:
    folder.mkdir()
    parts = plan_slices([source], slice_bytes)
    save_tokenizer(train_tokenizer([source], parts, spec, 0.2), folder / "tokenizer.json")
    loaded = load_tokenizer(folder / "tokenizer.json")
    results = [tokenize_slice(source, part, loaded, spec, 0.2, folder) for part in reversed(parts)]
    return build_manifest(loaded, spec, 0.2, results)


def _documents(folder: Path, manifest: ShardManifest, split: ShardSplit) -> list[str]:
    whole = Tokenizer.from_file(str(folder / "tokenizer.json"))
    dtype = f"<u{manifest.token_type.bytes_per_token}"
    tokens = np.concatenate([np.fromfile(folder / shard.name, dtype) for shard in split.shards])
    assert len(tokens) == split.tokens
    ends = np.flatnonzero(tokens == manifest.end_of_text)
    assert ends[-1] == len(tokens) - 1
    pieces = np.split(tokens, ends + 1)[:-1]
    return [whole.decode(piece[:-1].tolist(), skip_special_tokens=False) for piece in pieces]


@pytest.mark.parametrize("spec", [BYTES, BPE], ids=["bytes", "bpe"])
def test_every_document_comes_back_from_the_split_it_belongs_to(
    tmp_path: Path, source: Source, spec: TokenizerSpec
) -> None:
    manifest = _prepare(source, spec, tmp_path / "out", slice_bytes=4_000)
    assert len(manifest.train.shards) > 3
    held = [text for text in _texts(source) if is_validation(text, 0.2)]
    kept = [text for text in _texts(source) if not is_validation(text, 0.2)]
    assert _documents(tmp_path / "out", manifest, manifest.train) == kept
    assert _documents(tmp_path / "out", manifest, manifest.validation) == held
    assert (manifest.train.documents, manifest.validation.documents) == (len(kept), len(held))


@pytest.mark.parametrize("spec", [BYTES, BPE], ids=["bytes", "bpe"])
def test_a_rerun_gives_the_same_digests(tmp_path: Path, source: Source, spec: TokenizerSpec) -> None:
    first = _prepare(source, spec, tmp_path / "first", slice_bytes=4_000)
    second = _prepare(source, spec, tmp_path / "second", slice_bytes=4_000)
    assert first == second


def test_a_killed_slice_leaves_nothing_and_its_repetition_the_same_bytes(
    tmp_path: Path, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = plan_slices([source])[0]
    given = (source, part, byte_tokenizer(), BYTES, 0.2)
    whole = tokenize_slice(*given, tmp_path)
    content = {path.name: path.read_bytes() for path in tmp_path.glob("*.bin")}

    def killed(text: str, fraction: float) -> bool:
        raise KeyboardInterrupt

    again = tmp_path / "again"
    again.mkdir()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(shards, "is_validation", killed)
        tokenize_slice(*given, again)
    assert not list(again.iterdir())
    assert tokenize_slice(*given, again) == whole
    assert {path.name: path.read_bytes() for path in again.iterdir()} == content


def test_rejected_lines_are_counted_and_numbered_within_the_file(tmp_path: Path, source: Source) -> None:
    parts = plan_slices([source], 4_000)
    results = [tokenize_slice(source, part, byte_tokenizer(), BYTES, 0.2, tmp_path) for part in parts]
    assert [item.line for item in rejected_lines(results)] == [8, 58, 108, 158]
    assert sum(result.rejected_count for result in results) == 4
    assert sum(result.documents for result in results) == 196


def test_the_list_of_rejected_lines_is_bounded_and_the_count_is_not(tmp_path: Path) -> None:
    source = Source("bad.jsonl", tmp_path / "bad")
    source.path.write_text("oops\n" * 1_500)
    result = tokenize_slice(source, plan_slices([source])[0], byte_tokenizer(), BYTES, 0.2, tmp_path)
    assert (len(result.rejected), result.rejected_count) == (1_000, 1_500)


def test_a_split_into_which_nothing_fell_is_empty(tmp_path: Path) -> None:
    source = Source("one.txt", tmp_path / "one")
    source.path.write_text("a single short document")
    manifest, rejected = prepare_folder([source], DataSpec(dataset="x", tokenizer=BYTES), tmp_path / "out")
    assert manifest.validation == ShardSplit()
    assert manifest.train.tokens == len("a single short document") + 1
    assert not rejected


@settings(deadline=None, max_examples=100)
@given(st.text())
def test_bytes_bring_back_any_text(text: str) -> None:
    whole = byte_tokenizer()
    ids = whole.encode(text).ids
    assert ids == list(text.encode())
    assert whole.decode(ids, skip_special_tokens=False) == text


def test_the_vocabulary_is_the_size_asked_for_whatever_bpe_found(tmp_path: Path) -> None:
    source = Source("small.txt", tmp_path / "small")
    source.path.write_text("ab ab ab")
    spec = TokenizerSpec(vocabulary=70_000)
    manifest, _ = prepare_folder([source], DataSpec(dataset="x", tokenizer=spec), tmp_path / "out")
    assert manifest.tokenizer.size == 70_000
    assert manifest.token_type.bytes_per_token == 4
    assert load_tokenizer(tmp_path / "out/tokenizer.json").get_vocab_size() < 300


def test_bpe_reaches_the_size_asked_for_and_ends_texts_with_one_token(source: Source) -> None:
    trained = train_tokenizer([source], plan_slices([source]), TokenizerSpec(vocabulary=280), 0.2)
    assert trained.get_vocab_size() == 280
    assert trained.token_to_id(END_OF_TEXT) is not None


def test_transformers_reads_the_tokenizer(tmp_path: Path, source: Source) -> None:
    _prepare(source, BPE, tmp_path / "out", slice_bytes=2**20)
    theirs = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "out/tokenizer.json"))
    ours = load_tokenizer(tmp_path / "out/tokenizer.json")
    text = "grün and def f(x):\n\treturn x \U0001f98a"
    assert theirs(text)["input_ids"] == ours.encode(text).ids
    assert theirs.decode(theirs(text)["input_ids"]) == text


def test_the_sample_is_bounded(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer, "SAMPLE_BYTES", 2_000)
    sample = list(tokenizer._sample([source], plan_slices([source], 1_000), 0.2))
    assert 1_000 < sum(len(text.encode()) for text in sample) <= 2_000
    assert not any(is_validation(text, 0.2) for text in sample)
    assert sample == list(tokenizer._sample([source], plan_slices([source], 1_000), 0.2))
