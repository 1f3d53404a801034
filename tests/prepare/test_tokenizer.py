"""Uploaded tokenizers: which are accepted, which are refused and why, and that hostile ones are harmless."""

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import Unigram, WordPiece
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.processors import TemplateProcessing

from tests.selection import partly_slow
from trainwright.prepare.encode import make_encoder
from trainwright.prepare.tokenizer import (
    END_OF_TEXT,
    END_OF_TEXT_TOKENS,
    CheckedTokenizer,
    UnusableTokenizerError,
    byte_tokenizer,
    check_tokenizer,
    encode_prompt,
    end_of_text_id,
    for_preparing,
    tokenizer_bytes,
    train_bpe,
)

TEXTS = ["the cat sat on the mat, grün and 中文 " * 20, "def f(x):\n\treturn x\n" * 20]
Content = dict[str, Any]


def _content() -> Content:
    content: Content = json.loads(train_bpe(iter(TEXTS), 290).to_str())
    return content


def _bytes(content: Content) -> bytes:
    return json.dumps(content).encode()


def _split(pattern: str) -> Content:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def _replace(pattern: str, by: str) -> Content:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": by}


def _sequence(normalizers: list[Content]) -> Content:
    return {"type": "Sequence", "normalizers": normalizers}


def test_bpe_training_depends_only_on_the_stream_of_texts() -> None:
    seen = []

    def stream() -> Iterator[str]:
        for text in TEXTS:
            seen.append(text)
            yield text

    first = train_bpe(stream(), 290)
    assert seen == TEXTS
    assert tokenizer_bytes(first) == tokenizer_bytes(train_bpe(iter(TEXTS), 290))
    assert first.get_vocab_size() == 290


@pytest.mark.parametrize("make", [byte_tokenizer, lambda: train_bpe(iter(TEXTS), 290)], ids=["bytes", "bpe"])
def test_our_own_tokenizers_pass_the_checks_of_uploaded_ones(make: Callable[[], Tokenizer]) -> None:
    tokenizer = make()
    expected = CheckedTokenizer(tokenizer.get_vocab_size(), end_of_text_id(tokenizer), END_OF_TEXT)
    assert check_tokenizer(tokenizer_bytes(tokenizer)) == expected


@pytest.mark.parametrize("name", END_OF_TEXT_TOKENS)
def test_the_end_of_text_is_found_by_its_usual_names(name: str) -> None:
    tokenizer = Tokenizer.from_str(json.dumps(_content() | {"added_tokens": []}))
    tokenizer.add_special_tokens(["<s>", AddedToken(name, special=True), "<pad>"])
    checked = check_tokenizer(tokenizer.to_str().encode())
    assert checked.end_of_text == end_of_text_id(tokenizer) == tokenizer.token_to_id(name)
    assert checked.end_of_text_token == name
    assert checked.vocabulary == max(tokenizer.get_vocab().values()) + 1


def test_of_two_end_tokens_the_first_of_the_list_is_used() -> None:
    tokenizer = train_bpe(iter(TEXTS), 290)
    tokenizer.add_special_tokens(["</s>"])
    assert end_of_text_id(tokenizer) == tokenizer.token_to_id(END_OF_TEXT)


def _unigram(score_of_end: float) -> bytes:
    pieces = [("<unk>", 0.0), ("</s>", score_of_end), *((chr(0x20 + number), -5.0) for number in range(300))]
    tokenizer = Tokenizer(Unigram(pieces, unk_id=0))
    tokenizer.add_special_tokens(["</s>"])
    return tokenizer.to_str().encode()


def test_a_unigram_is_accepted() -> None:
    assert check_tokenizer(_unigram(-1_000.0)) == CheckedTokenizer(302, 1, "</s>")


def test_a_vocabulary_with_gaps_counts_up_to_its_largest_id() -> None:
    content = _content()
    content["model"]["vocab"]["zz"] = 999
    assert check_tokenizer(_bytes(content)).vocabulary == 1_000


def test_a_length_limit_in_the_file_truncates_no_document() -> None:
    tokenizer = train_bpe(iter(TEXTS), 290)
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=4_000)
    assert check_tokenizer(tokenizer.to_str().encode()).vocabulary == 290
    ids = make_encoder(for_preparing(Tokenizer.from_str(tokenizer.to_str()))).encode(TEXTS)
    assert [ids.tolist() for ids in ids] == [train_bpe(iter(TEXTS), 290).encode(text).ids for text in TEXTS]


def _deep() -> bytes:
    return b"[" * 1_000_000


def _wordpiece() -> bytes:
    tokenizer = Tokenizer(WordPiece({"[UNK]": 0, "the": 1}, unk_token="[UNK]"))
    return tokenizer.to_str().encode()


def _changed(change: Callable[[Content], object]) -> Callable[[], bytes]:
    def make() -> bytes:
        content = copy.deepcopy(_content())
        change(content)
        return _bytes(content)

    return make


REFUSED: dict[str, tuple[Callable[[], bytes], str]] = {
    "too large": (lambda: b" " * (64 * 2**20 + 1), "the file has 67,108,865 bytes, more than 67,108,864"),
    "not UTF-8": (lambda: b"{\xff}", "it is not UTF-8 (invalid start byte at byte 1)"),
    "not JSON": (lambda: b"{", "it is not JSON"),
    "nested": (_deep, "its JSON is nested too deeply"),
    "config": (lambda: b'{"model_max_length": 3}', "not tokenizer_config.json"),
    "WordPiece": (_wordpiece, "model.type is WordPiece, which turns all unknown words into one token"),
    "no kind": (_changed(lambda it: it["model"].pop("type")), "model.type is null: use one of BPE, Unigram"),
    "no merges": (
        _changed(lambda it: it["model"].pop("merges")),
        "the library `tokenizers` does not read it",
    ),
    "dropout": (_changed(lambda it: it["model"].update(dropout=0.1)), "model.dropout is set"),
    "end in plain text": (
        lambda: _unigram(0.0),
        "'</s>' also comes from text that spells it",
    ),
    "no end": (
        _changed(lambda it: it["added_tokens"].clear()),
        "looked for <|endoftext|>, <|end_of_text|>, </s>",
    ),
    "end not special": (
        _changed(lambda it: it["added_tokens"][0].update(special=False)),
        "with special: true",
    ),
    "duplicate id": (
        _changed(lambda it: it["model"]["vocab"].update(zz=7)),
        "give every token an id of its own",
    ),
    "duplicate added": (
        _changed(lambda it: it["added_tokens"][0].update(id=9)),
        "give every token an id of its own",
    ),
    "huge id": (_changed(lambda it: it["model"]["vocab"].update(zz=2**20)), "its largest id is 1,048,576"),
    "too few": (_changed(lambda it: _shrink(it)), "it has 3 ids; the smallest vocabulary is 257"),
    "nested repetition": (_changed(lambda it: it.update(pre_tokenizer=_split("(a+)+$"))), "takes too long"),
    "normalizer": (
        _changed(
            lambda it: it.update(
                normalizer={"type": "Replace", "pattern": {"Regex": "(z|zz)+q"}, "content": ""}
            )
        ),
        "simplify it",
    ),
    "slow pattern": (
        _changed(lambda it: it.update(pre_tokenizer=_split(r"(?=(\S*\S*)x)x"))),
        "takes too long",
    ),
    "many slow patterns": (
        _changed(lambda it: it.update(normalizer=_sequence([_replace(r"\s+\d", "Y")] * 60))),
        "takes too long",
    ),
    "expanding": (
        _changed(lambda it: it.update(normalizer=_sequence([_replace("a", "a" * 5_000)] * 3))),
        "more than 2 GiB of memory",
    ),
    "bad pattern": (_changed(lambda it: it.update(pre_tokenizer=_split("("))), "does not read it"),
    "swells": (lambda: b'{"model": [' + b'{"":{}},' * (8_000 * 2**10) + b"{}]}", "more than 2 GiB of memory"),
    "nothing": (
        _changed(
            lambda it: it.update(
                normalizer={"type": "Replace", "pattern": {"Regex": r"[\s\S]"}, "content": ""}
            )
        ),
        "no tokens",
    ),
}

LONGEST = ("many slow patterns", "swells", "expanding")
"""Cases of ``make faults``, which take up to eight CPU seconds each."""


def _shrink(content: Content) -> None:
    content["model"].update(vocab={END_OF_TEXT: 0, "a": 1, "b": 2}, merges=[])


@pytest.mark.parametrize(
    ("make", "why"),
    partly_slow(REFUSED.values(), [case for name, case in REFUSED.items() if name not in LONGEST], "faults"),
    ids=REFUSED.keys(),
)
def test_an_unusable_tokenizer_is_refused_with_the_reason(make: Callable[[], bytes], why: str) -> None:
    with pytest.raises(UnusableTokenizerError) as refusal:
        check_tokenizer(make())
    assert why in str(refusal.value)


def test_a_tokenizer_without_an_end_of_text_has_no_id_for_it() -> None:
    tokenizer = Tokenizer.from_str(json.dumps(_content() | {"added_tokens": []}))
    with pytest.raises(ValueError, match=r"no special token ends a text: looked for <\|endoftext\|>"):
        end_of_text_id(tokenizer)


def test_text_that_spells_a_special_token_is_encoded_as_text() -> None:
    tokenizer = train_bpe(iter(TEXTS), 290)
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    ids = make_encoder(tokenizer).encode([f"a{END_OF_TEXT}b"])[0]
    assert end_of_text_id(tokenizer) not in ids
    assert tokenizer.decode(ids.tolist(), skip_special_tokens=False) == f"a{END_OF_TEXT}b"


def test_a_prompt_is_encoded_like_a_document() -> None:
    """The truncation, padding and template of the tokenizer's file are ignored."""
    plain = train_bpe(iter(TEXTS), 290)
    uploaded = Tokenizer.from_str(plain.to_str())
    uploaded.enable_truncation(3)
    uploaded.enable_padding(length=40)
    uploaded.post_processor = TemplateProcessing(
        single=f"{END_OF_TEXT} $A", special_tokens=[(END_OF_TEXT, end_of_text_id(uploaded))]
    )
    prompt = "the cat sat on the mat"
    assert uploaded.encode(prompt).ids != plain.encode(prompt).ids, "negative control"
    assert encode_prompt(uploaded, prompt) == plain.encode(prompt).ids
    assert encode_prompt(uploaded, "") == [end_of_text_id(uploaded)]
