"""Encoding: from texts to arrays of token ids, as fast as a core allows and always as `tokenizers` would do it.

`tokenizers` is the reference: what it says a text's tokens are, they are. For the byte-level BPE that is trained here
(GPT-2's, with any vocabulary) `fastokens` gives the same ids many times faster. It is taken only for a tokenizer of
that kind, and only after both have encoded a fixed, nasty text alike, so an update of either library that changes one
code point costs speed and never a token.

Texts that spell a special token get its letters, not its id, and no special token is added. (An uploaded Unigram is the
exception: it knows its special tokens as pieces like any other, and `tokenizers` finds them in a text.)

Long documents are encoded in pieces, since `tokenizers` needs a hundred bytes and more for each token in hand. A piece
ends before a space that follows a character which is no white space: there the pre-tokenizers in use cut anyway, so
the tokens are those of the whole text. Where a piece has no such space, before a line feed of that kind (the same
for GPT-2's pattern); where it has neither, after ``PIECE_CHARACTERS``, and only there a cut may change tokens. A
tokenizer that puts something before whatever it is given, as SentencePiece's may, gets its documents whole.

This module reads no documents and writes no shards. An encoder starts threads: make it in the process that uses it.
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

PIECE_CHARACTERS = 2**16
"""Longer documents are encoded in pieces of at most this many characters."""
BATCH_CHARACTERS = 2**20
"""Text handed to a library at once."""

Ids = NDArray[np.uint32]
Encode = Callable[[list[str]], list[Ids]]
"""Ids of each of some short texts."""

_PLACES = (re.compile(r".*\S(?= )", re.DOTALL), re.compile(r".*\S(?=\n)", re.DOTALL))
"""Up to the last place where a text may be cut, best kind first. What Python takes for white space, all others do."""
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
"""Every such code point, of all planes, stands in the control text."""


class Encoder:
    """Encodes texts with one tokenizer."""

    def __init__(self, encode: Encode, library: str, cuts: bool) -> None:
        """Wrap what encodes short texts; ``cuts`` says whether long ones may be given to it in pieces."""
        self._encode = encode
        self._cuts = cuts
        self.library = library
        """Name of the library that does the work."""

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """Token ids of each text, uint32, without special tokens; they may share one read-only buffer."""
        owners: list[int] = []
        found: list[list[Ids]] = [[] for _ in texts]
        batch: list[str] = []
        characters = 0
        for index, text in enumerate(texts):
            for piece in split(text) if self._cuts else [text]:
                owners.append(index)
                batch.append(piece)
                characters += len(piece)
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
    """The fastest encoder that gives exactly the ids of ``tokenizer``, which writes out special tokens as text."""
    exact = exact_encode(tokenizer)
    fast = _fast_and_exact(tokenizer.to_str(), exact)
    if fast is not None:
        return Encoder(fast, "fastokens", cuts=True)
    return Encoder(exact, "tokenizers", cuts=_may_be_cut(exact))


def exact_encode(tokenizer: Tokenizer) -> Encode:
    """How `tokenizers` encodes: the reference."""
    assert tokenizer.encode_special_tokens, "a tokenizer for preparing data finds no special token in a text"

    def encode(texts: list[str]) -> list[Ids]:
        try:
            encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        except BaseException as error:
            # The library panics, with a class of its own beside `Exception`, on a pattern that gives up on a text.
            if type(error).__name__ != "PanicException":
                raise
            raise UnusableDataError(f"The tokenizer's pattern gives up on a document: {error}.") from error
        return [np.array(encoding.ids, np.uint32) for encoding in encodings]

    return encode


def fast_encode(content: str) -> Encode:
    """How `fastokens` encodes with this ``tokenizer.json``, right or wrong."""
    # The library carries no types.
    library: Any = fastokens.Tokenizer.from_json_str(content)

    def encode(texts: list[str]) -> list[Ids]:
        data, ends = library.encode_batch_flat(texts, add_special_tokens=False, split_special_tokens=True)
        ids = np.frombuffer(data, "<u4")
        cuts = np.frombuffer(ends, "<u8").tolist()
        return [ids[start:end] for start, end in pairwise(cuts)]

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
    """Whether both give the same ids for the control text, in one piece and cut up."""
    texts = list(control_texts())
    return all(np.array_equal(a, b) for a, b in zip(one(texts), other(texts), strict=True))


@cache
def _patterns_are_alike() -> bool:
    return encode_alike(fast_encode(telltale()), exact_encode(for_preparing(Tokenizer.from_str(telltale()))))


def telltale() -> str:
    """A ``tokenizer.json`` that joins neighbouring characters wherever the pre-tokenizer does not cut between them.

    So a cut too many or too few shows in the ids, as it need not with a vocabulary that joins few characters: its
    merges are the last byte of a character with the first of another, over all of UTF-8 and some of ASCII.
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
    """A few kB in which pre-tokenizers, Unicode tables and merges are known to go wrong."""
    yield from _CONTROL_SNIPPETS
    yield "".join(_CONTROL_SNIPPETS)
    letters = [chr(point) for point in range(0, 0x110000, _CONTROL_STRIDE) if not 0xD800 <= point < 0xE000]
    yield "".join(letters)
    yield "a".join(letters[: len(letters) // 8])
    yield " ".join(letters[: len(letters) // 4])


def split(text: str) -> Iterator[str]:
    """The pieces in which a text is encoded; the module says where they end."""
    start = 0
    while len(text) - start > PIECE_CHARACTERS:
        end = _cut(text, start, start + PIECE_CHARACTERS)
        yield text[start:end]
        start = end
    yield text[start:]


def _cut(text: str, start: int, end: int) -> int:
    for place in _PLACES:
        if found := place.match(text, start, end):
            return found.end()
    return end


def _is_fast_kind(content: dict[str, Any]) -> bool:
    """A byte-level BPE as it is trained here: GPT-2's pattern, all bytes, no normalizer, only special tokens added."""
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


def _may_be_cut(encode: Encode) -> bool:
    """Whether the tokens of a text are those of its pieces, where these begin with a space."""
    whole, first, second = encode(["one two", "one", " two"])
    return np.array_equal(whole, _joined([first, second]))


def _joined(parts: list[Ids]) -> Ids:
    return np.concatenate(parts) if parts else np.empty(0, np.uint32)
