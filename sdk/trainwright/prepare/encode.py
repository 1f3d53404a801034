"""Encodes texts as arrays of token ids: as fast as possible, and always with the ids of `tokenizers`.

`tokenizers` is the reference. For the byte-level BPE that is trained here (as in GPT-2, with any vocabulary), `fastokens`
gives the same ids many times faster. It is used only for this kind of tokenizer, and only after both libraries have encoded
a fixed, difficult text identically: an update of either library that changes one code point costs speed, but never a token.

A special token that occurs in a text is encoded as its letters, not as its id, and no special token is added. (An
uploaded Unigram is the exception: its special tokens are ordinary segments, and `tokenizers` finds them in a text.)

Long documents are encoded in segments, because `tokenizers` needs over a hundred bytes of memory per token. A
segment ends before a space that follows a non-space character. The usual pre-tokenizers split there anyway,
so the tokens are those of the entire text. If there is no such space, the segment ends before a line end
that follows a non-space character (equivalent for GPT-2's pattern); otherwise after ``SEGMENT_CHARACTERS``,
the only split that may change tokens. A tokenizer that prepends something to its input, as SentencePiece's
may, gets entire documents.

This module reads no documents and writes no shards. Create an encoder in the process that uses it: it starts
threads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import fastokens
import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from trainwright.prepare.documents import UnusableDataError
from trainwright.prepare.tokenizer import byte_letters, for_preparing, load_tokenizer

SEGMENT_CHARACTERS = 2**16
"""Longer documents are encoded in segments of at most this many characters."""
BATCH_CHARACTERS = 2**20
"""Characters that are passed to a library at once."""

Ids = NDArray[np.uint32]
Encode = Callable[[list[str]], list[Ids]]
"""Returns the ids of each of several short texts."""

_PLACES = (re.compile(r".*\S(?= )", re.DOTALL), re.compile(r".*\S(?=[\r\n])", re.DOTALL))
"""Match up to the last position where a text may be split, best kind first. Python's white space is white space for all."""
_FAST_PRE_TOKENIZER = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
_FAST_MODEL = {
    "type": "BPE",
    "dropout": None,
    "continuing_subword_prefix": "",
    "end_of_word_suffix": "",
    "byte_fallback": False,
    "ignore_merges": False,
}
_CONTROL_SNIPPETS = (
    "The quick brown fox isn't here; they'LL've said we'd I'm 'S 'ſ don’t  \t\r\n\r\n   x  <|endoftext|> </s> ",
    "'Sam 'The 'Llama 'Very 'Real 'Mine 'Do 'sa 'te 'lle 'vea 'ree ’s ''s's s'S7 'd'd\n's1 ",
    "def f(x):\n\treturn x**2 + 1_000.5e-3  # ok\n\n\n    if a!=b: pass\u00a0\u00a0z \x0b\x0c\x85\x1c\x1d\x1e\x1f\x00 ",
    "grüße e\u0301\u0323 \u0301alone ﬁ İı ǅ ʰ ªº \u200b\u200d\u2060\ufeff \u1680\u180e\u2000\u2028\u2029\u202f\u205f\u3000 ",
    "中文，没有空格。日本語のテキスト ㍿ 한국어\u1160\uffa0 हिन्दी ไทยกำ עברית العربية ٣٤٥ ߁ ፩ Ⅷ ² ½ ① 𝟘 𑁦 〇 々 ",
    "👨\u200d👩\u200d👧\u200d👦🏳️\u200d🌈🇩🇪🦊 ∑∫√ ←→ €$¥ _^`´ \ue000\U000f0000\U0010ffff \ufdd0\ufffe\U0001fffe \u0378\U000e0001 ",
    "a" * 300 + " " * 300 + "\n" * 40 + "7" * 90 + "ab" * 60 + "=-" * 50 + "\u0301" * 40 + "ह" * 70,
)
_CONTROL_STRIDE = 193
"""Stride of the code points, over all planes, in the control text."""


class Encoder:
    """Encodes texts with one tokenizer."""

    def __init__(self, encode: Encode, library: str, splits: bool) -> None:
        """Wrap ``encode``, which encodes short texts; ``splits`` says whether long texts may be split into segments."""
        self._encode = encode
        self._splits = splits
        self.library = library
        """Name of the library."""

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """Token ids of each text, uint32, without special tokens. They may share one read-only buffer."""
        owners: list[int] = []
        found: list[list[Ids]] = [[] for _ in texts]
        batch: list[str] = []
        characters = 0
        for index, text in enumerate(texts):
            for segment in split(text) if self._splits else [text]:
                owners.append(index)
                batch.append(segment)
                characters += len(segment)
                if characters >= BATCH_CHARACTERS:
                    self._flush(batch, owners, found)
                    characters = 0
        self._flush(batch, owners, found)
        return [parts[0] if len(parts) == 1 else _joined(parts) for parts in found]

    def _flush(self, batch: list[str], owners: list[int], found: list[list[Ids]]) -> None:
        for owner, ids in zip(owners, self._encode(batch), strict=True):
            found[owner].append(ids)
        batch.clear()
        owners.clear()


def load_encoder(path: Path) -> Encoder:
    """The encoder of a ``tokenizer.json``."""
    return make_encoder(load_tokenizer(path))


def make_encoder(tokenizer: Tokenizer) -> Encoder:
    """The fastest encoder with exactly the ids of ``tokenizer``, which treats special tokens in texts as text."""
    exact = exact_encode(tokenizer)
    fast = _fast_and_exact(tokenizer.to_str(), exact)
    if fast is not None:
        return Encoder(fast, "fastokens", splits=True)
    return Encoder(exact, "tokenizers", splits=_may_be_split(exact))


def exact_encode(tokenizer: Tokenizer) -> Encode:
    """The reference: encoding by `tokenizers`."""
    assert tokenizer.encode_special_tokens, (
        "a tokenizer for preparing data must not recognize special tokens in texts"
    )

    def encode(texts: list[str]) -> list[Ids]:
        try:
            encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        except BaseException as error:
            # If a pattern gives up on a text, the library raises a panic, which is not an `Exception`.
            if type(error).__name__ != "PanicException":
                raise
            raise UnusableDataError(f"The tokenizer's pattern gives up on a document: {error}.") from error
        return [np.array(encoding.ids, np.uint32) for encoding in encodings]

    return encode


def fast_encode(content: str) -> Encode:
    """Encoding by `fastokens` with this ``tokenizer.json``, which may be wrong."""
    # The library has no type hints.
    library: Any = fastokens.Tokenizer.from_json_str(content)

    def encode(texts: list[str]) -> list[Ids]:
        data, ends = library.encode_batch_flat(texts, add_special_tokens=False, split_special_tokens=True)
        ids = np.frombuffer(data, "<u4")
        splits = np.frombuffer(ends, "<u8").tolist()
        return [ids[start:end] for start, end in pairwise(splits)]

    return encode


def _fast_and_exact(content: str, exact: Encode) -> Encode | None:
    if not _is_fast_kind(json.loads(content)):
        return None
    try:
        fast = fast_encode(content)
    except ValueError:  # it does not read what `tokenizers` reads
        return None
    return fast if encode_alike(fast, exact) and _patterns_are_alike() else None


def encode_alike(one: Encode, other: Encode) -> bool:
    """Whether both give the same ids for the control text, entire and in parts."""
    texts = list(control_texts())
    return all(np.array_equal(a, b) for a, b in zip(one(texts), other(texts), strict=True))


@cache
def _patterns_are_alike() -> bool:
    return encode_alike(fast_encode(telltale()), exact_encode(for_preparing(Tokenizer.from_str(telltale()))))


def telltale() -> str:
    """A ``tokenizer.json`` that merges all neighbouring characters that the pre-tokenizer does not split.

    So every wrong split changes the ids, which it might not with a vocabulary with few merges. The merges join the last
    byte of a character and the first byte of another one, over all of UTF-8 and some of ASCII.
    """
    letters = byte_letters()
    ascii_bytes = b" \n\t'aSsTLldve17.-"
    last = [letters[byte] for byte in (*ascii_bytes, *range(0x80, 0xC0))]
    first = [letters[byte] for byte in (*ascii_bytes, *range(0xC2, 0xF5))]
    merges = list(product(last, first))
    vocabulary = {token: number for number, token in enumerate([*letters, *map("".join, merges)])}
    tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    return tokenizer.to_str()


def control_texts() -> Iterator[str]:
    """A few kB of text where errors of pre-tokenizers, Unicode tables and merges show."""
    yield from _CONTROL_SNIPPETS
    yield "".join(_CONTROL_SNIPPETS)
    letters = [chr(point) for point in range(0, 0x110000, _CONTROL_STRIDE) if not 0xD800 <= point < 0xE000]
    yield "".join(letters)
    yield "a".join(letters[: len(letters) // 8])
    yield " ".join(letters[: len(letters) // 4])


def split(text: str) -> Iterator[str]:
    """The segments in which a text is encoded. The module docstring says where they end."""
    start = 0
    while len(text) - start > SEGMENT_CHARACTERS:
        end = _cut(text, start, start + SEGMENT_CHARACTERS)
        yield text[start:end]
        start = end
    yield text[start:]


def _cut(text: str, start: int, end: int) -> int:
    for place in _PLACES:
        if found := place.match(text, start, end):
            return found.end()
    return end


def _is_fast_kind(content: dict[str, Any]) -> bool:
    """Whether it is a byte-level BPE as trained here: GPT-2's pattern, all bytes, no normalizer, only special tokens added."""
    model, before = content["model"], content["pre_tokenizer"]
    return (
        content["normalizer"] is None
        and content["truncation"] is None
        and content["padding"] is None
        and before is not None
        and all(before.get(key) == value for key, value in _FAST_PRE_TOKENIZER.items())
        and all((model.get(key) or "") == (value or "") for key, value in _FAST_MODEL.items())
        and all(token["special"] for token in content["added_tokens"])
        and all(letter in model["vocab"] for letter in byte_letters())
    )


def _may_be_split(encode: Encode) -> bool:
    """Whether the tokens of a text are those of its segments, if these start with a space."""
    whole, first, second = encode(["one two", "one", " two"])
    return np.array_equal(whole, _joined([first, second]))


def _joined(parts: list[Ids]) -> Ids:
    return np.concatenate(parts) if parts else np.empty(0, np.uint32)
