"""The fast encoder gives the same ids as `tokenizers` for any text, and is not used for tokenizers where it would
differ.

The suite tries some random texts; ``TRAINWRIGHT_RANDOM_TEXTS=2000`` tries two thousand new ones each time.
"""

import itertools
import json
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import fastokens
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers.models import BPE, Unigram
from tokenizers.normalizers import NFC, Prepend, Replace, Sequence
from tokenizers.pre_tokenizers import ByteLevel, Metaspace, Split
from tokenizers.pre_tokenizers import Sequence as PreSequence
from tokenizers.trainers import BpeTrainer, UnigramTrainer

from trainwright.prepare import encode
from trainwright.prepare.documents import UnusableDataError
from trainwright.prepare.encode import (
    control_texts,
    encode_alike,
    exact_encode,
    fast_encode,
    load_encoder,
    make_encoder,
    split,
    telltale,
)
from trainwright.prepare.tokenizer import (
    END_OF_TEXT,
    byte_letters,
    byte_tokenizer,
    for_preparing,
    save_tokenizer,
    train_bpe,
)

RANDOM_TEXTS = int(os.environ.get("TRAINWRIGHT_RANDOM_TEXTS", "300"))

CODE = [path.read_text() for path in sorted(Path(json.__file__).parent.parent.glob("[abc]*.py"))]
CORPUS = [*CODE, *control_texts()]
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

NASTY = [
    *(
        "'s",
        "'LL",
        "'ſ",
        "’s",
        " ",
        "  ",
        "\t",
        "\n",
        "\r\n",
        "\r",
        "\x0b",
        "\x0c",
        "\x1c",
        "\x1f",
        "\x00",
        "\x85",
    ),
    *(
        "\u00a0",
        "\u1680",
        "\u180e",
        "\u2000",
        "\u2028",
        "\u2029",
        "\u202f",
        "\u205f",
        "\u3000",
        "\u200b",
        "\ufeff",
    ),
    *(
        "👨\u200d👩\u200d👧",
        "🏳️\u200d🌈",
        "🇩🇪",
        "e\u0301",
        "\u0301",
        "\u20dd",
        "ǅ",
        "ʰ",
        "ª",
        "ﬁ",
        "İ",
        "ſ",
        "ᅠ",
        "々",
    ),
    *(
        "٣٤",
        "߁",
        "፩",
        "Ⅷ",
        "²",
        "½",
        "①",
        "𝟘",
        "𑁦",
        "〇",
        "中文",
        "한국어",
        "हिन्दी",
        "ไทยกำ",
        "\ue000",
        "\U0010ffff",
    ),
    *(
        "\u0378",
        "\ufdd0",
        "\ufffe",
        "\U0001fffe",
        "\U000e0001",
        END_OF_TEXT,
        "<|",
        "endoftext",
        "|>",
        "</s>",
        "Ġ",
        "Ċ",
    ),
    *(
        "don't",
        "I'm",
        "__init__",
        "x+=1",
        "the",
        " the",
        "$",
        "€",
        "_",
        "`",
        "´",
        "a" * 200,
        " " * 200,
        "\n" * 50,
        "7" * 99,
    ),
]
ANY = st.characters(exclude_categories=("Cs",))
MIXTURES = st.lists(
    st.one_of(st.sampled_from(NASTY), ANY, st.builds(lambda a, n: a * n, ANY, st.integers(2, 40))),
    max_size=12,
)
TEXTS = st.one_of(st.text(ANY), MIXTURES.map("".join))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Tokenizer, encode.Encoder]]:
    """Tokenizers of several sizes, each with the encoder that its file gives."""
    found = []
    for number, tokenizer in enumerate(
        [byte_tokenizer(), *(train_bpe(iter(CORPUS), size) for size in (257, 300)), _large()]
    ):
        path = tmp_path_factory.mktemp("tokenizers") / f"{number}.json"
        save_tokenizer(tokenizer, path)
        found.append((tokenizer, load_encoder(path)))
    return found


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False).ids)


@settings(deadline=None, max_examples=RANDOM_TEXTS)
@given(text=TEXTS)
def test_any_text_has_the_ids_that_tokenizers_gives_it(
    trained: list[tuple[Tokenizer, encode.Encoder]], text: str
) -> None:
    for tokenizer, encoder in trained:
        assert encoder.library == "fastokens"
        ids = encoder.encode([text])[0]
        assert ids.dtype == np.uint32
        assert ids.tolist() == _ids(tokenizer, text)
        assert tokenizer.token_to_id(END_OF_TEXT) not in ids


@pytest.mark.slow(target="faults")
def test_every_code_point_has_the_ids_that_tokenizers_gives_it(
    trained: list[tuple[Tokenizer, encode.Encoder]],
) -> None:
    tokenizer, encoder = trained[-1]
    points = [chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000]
    texts = ["a".join(points[start : start + 500]) + " 1" for start in range(0, len(points), 500)]
    expected = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    assert all(ids.tolist() == found.ids for ids, found in zip(encoder.encode(texts), expected, strict=True))


@example(words=[("0" * 5, "x\r\n "), *[("0" * 10, "x\r\n ")] * 4])
@settings(deadline=None, max_examples=RANDOM_TEXTS // 3)
@given(
    words=st.lists(
        st.tuples(
            st.text(ANY, min_size=1, max_size=10),
            st.sampled_from(["x ", "x\n", "x  \n", "x\r\n ", "x \u3000"]),
        )
    )
)
def test_splitting_a_text_changes_no_token(
    trained: list[tuple[Tokenizer, encode.Encoder]], words: list[tuple[str, str]]
) -> None:
    text = "".join(itertools.chain.from_iterable(words))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encode, "SEGMENT_CHARACTERS", 64)
        segments = list(split(text))
        assert "".join(segments) == text
        assert max(map(len, segments)) <= 64
        for tokenizer, encoder in trained:
            assert encoder.encode([text])[0].tolist() == _ids(tokenizer, text)


def test_a_text_without_a_split_point_is_encoded_anyway() -> None:
    for text in ("a" * 200_000, " " * 200_000, "中" * 200_000, ""):
        segments = list(split(text))
        assert "".join(segments) == text
        assert max(map(len, segments)) <= encode.SEGMENT_CHARACTERS


def test_texts_of_any_length_are_returned_in_order(
    trained: list[tuple[Tokenizer, encode.Encoder]],
) -> None:
    long = " ".join(CODE)[:1_500_000]
    texts = ["", "one", long, "", "two words", long[:70_000], "x"]
    for tokenizer, encoder in trained[-1:]:
        found = encoder.encode(texts)
        assert [ids.tolist() for ids in found] == [_ids(tokenizer, text) for text in texts]
        assert encoder.encode([]) == []


def _split_by(pattern: str) -> Any:
    return PreSequence(
        [Split(Regex(pattern), "isolated"), ByteLevel(add_prefix_space=False, use_regex=False)]
    )


@cache
def _large_content() -> str:
    return train_bpe(iter(CORPUS), 4096).to_str()


def _large() -> Tokenizer:
    return for_preparing(Tokenizer.from_str(_large_content()))


def _telltale(pre_tokenizer: Any) -> Tokenizer:
    tokenizer = for_preparing(Tokenizer.from_str(telltale()))
    tokenizer.pre_tokenizer = pre_tokenizer
    return tokenizer


def _right() -> Tokenizer:
    return _telltale(ByteLevel(add_prefix_space=False))


def test_gpt2s_pattern_written_out_passes_the_self_check() -> None:
    """This ensures that the following patterns are refused for what they match, not because they are written out."""
    assert encode_alike(exact_encode(_telltale(_split_by(GPT2))), exact_encode(_right()))


@pytest.mark.parametrize(
    "wrong",
    [
        ByteLevel(add_prefix_space=False, use_regex=False),
        ByteLevel(add_prefix_space=True),
        _split_by(GPT2.replace("'s|", "'[sS]|")),
        _split_by(GPT2.replace(r"\p{N}", "0-9").replace("0-9+", "[0-9]+")),
        _split_by(GPT2.replace(r"\p{L}", r"\p{L}\p{M}").replace(r" ?\p{L}\p{M}+", r" ?[\p{L}\p{M}]+")),
        _split_by(GPT2.replace(r"\s+(?!\S)|", "")),
        _split_by(GPT2.replace(r"\p{L}", "a-zA-Zà-ÿ").replace("a-zA-Zà-ÿ+", "[a-zA-Zà-ÿ]+", 1)),
        _split_by(GPT2.replace(r"\s", r" \t\r\n").replace(r" \t\r\n+", r"[ \t\r\n]+")),
    ],
    ids=[
        "none",
        "prefix",
        "capitals",
        "ascii digits",
        "marks",
        "trailing space",
        "latin letters",
        "ascii space",
    ],
)
def test_the_self_check_detects_a_wrong_pre_tokenizer(wrong: Any) -> None:
    assert not encode_alike(exact_encode(_telltale(wrong)), exact_encode(_right()))


def test_a_library_that_encodes_differently_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    real = fastokens.Tokenizer

    class Wrong:
        @staticmethod
        def from_json_str(content: str) -> Any:
            return real.from_json_str(content.replace('"use_regex":true', '"use_regex":false'))

    tokenizer = _large()
    assert make_encoder(tokenizer).library == "fastokens"
    monkeypatch.setattr(fastokens, "Tokenizer", Wrong)
    assert not encode_alike(fast_encode(tokenizer.to_str()), exact_encode(tokenizer))
    encoder = make_encoder(tokenizer)
    assert encoder.library == "tokenizers"
    assert encoder.encode([CODE[0]])[0].tolist() == _ids(tokenizer, CODE[0])


def _bpe(change: Callable[[Tokenizer], object]) -> Tokenizer:
    tokenizer = _large()
    change(tokenizer)
    return tokenizer


def _without_a_byte() -> Tokenizer:
    content = json.loads(_large_content())
    del content["model"]["vocab"][byte_letters()[0xC0]]
    return for_preparing(Tokenizer.from_str(json.dumps(content)))


def _sentencepiece() -> Tokenizer:
    """A BPE like Llama 2's: no pre-tokenizer, and a normalizer that prepends a space to every text."""
    tokenizer = Tokenizer(BPE(unk_token="<unk>"))
    tokenizer.normalizer = Sequence([Prepend("▁"), Replace(" ", "▁")])
    words = [word for text in CODE[:5] for word in text.split()]
    tokenizer.train_from_iterator(
        words, BpeTrainer(vocab_size=400, special_tokens=["<unk>", "</s>"], show_progress=False)
    )
    return for_preparing(tokenizer)


def _unigram() -> Tokenizer:
    tokenizer = Tokenizer(Unigram())
    tokenizer.pre_tokenizer = Metaspace()
    trainer = UnigramTrainer(
        vocab_size=400, special_tokens=["<unk>", "</s>"], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator([text[:5_000] for text in CODE[:5]], trainer)
    return for_preparing(tokenizer)


@pytest.mark.parametrize(
    "make",
    [
        lambda: _bpe(lambda it: setattr(it, "normalizer", NFC())),
        lambda: _bpe(lambda it: setattr(it, "pre_tokenizer", ByteLevel(add_prefix_space=True))),
        lambda: _bpe(
            lambda it: setattr(it, "pre_tokenizer", _split_by(r"\p{N}{1,3}| ?\p{L}+|\s+(?!\S)|[^\p{L}\p{N}]"))
        ),
        lambda: _bpe(lambda it: it.add_tokens([AddedToken("return", special=False)])),
        lambda: _bpe(lambda it: setattr(it.model, "ignore_merges", True)),
        _without_a_byte,
        _sentencepiece,
        _unigram,
    ],
    ids=["normalizer", "prefix", "pattern", "added", "ignore merges", "byte", "sentencepiece", "unigram"],
)
def test_other_kinds_are_encoded_by_the_tokenizers_library(make: Callable[[], Tokenizer]) -> None:
    tokenizer = make()
    encoder = make_encoder(tokenizer)
    assert encoder.library == "tokenizers"
    long = "\n".join(CODE)[:100_000]
    texts = [*list(control_texts())[:5], "", long]
    assert [ids.tolist() for ids in encoder.encode(texts)] == [_ids(tokenizer, text) for text in texts]


def test_a_pattern_that_fails_on_a_document_is_an_error_that_names_it() -> None:
    content = json.loads(byte_tokenizer().to_str())
    split = {"type": "Split", "pattern": {"Regex": "(x+x+)+y"}, "behavior": "Isolated", "invert": False}
    letters = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, letters]}
    encoder = make_encoder(for_preparing(Tokenizer.from_str(json.dumps(content))))
    with pytest.raises(UnusableDataError, match="gives up on a document"):
        encoder.encode(["x" * 40 + "z"])
