"""Checks an uploaded tokenizer: ``python -m trainwright.prepare.probe_tokenizer < tokenizer.json``.

Prints ``{"vocabulary": …, "end_of_text": …, "end_of_text_token": …}``, or ``{"wrong": …}`` with the error and what to
do. The process limits its own memory and CPU time: a file that is deeply nested, expands when parsed, or has a regular
expression that never terminates can crash only this process. `tokenizer.check_tokenizer` refuses a file whose probe
dies or raises.

It checks whether a tokenizer can be used, not whether it is a good one.
"""

from __future__ import annotations

import json
import resource
import string
import sys
import time
from typing import Any

from tokenizers import Tokenizer

from trainwright.contracts.data_spec import BYTES_VOCABULARY
from trainwright.prepare.tokenizer import end_of_text_id, for_preparing

MEMORY_BYTES = 2 * 2**30
READ_SECONDS = 60
"""CPU time for reading the file; the largest accepted files take about a tenth."""
ENCODE_SECONDS = 5
"""CPU time for encoding the probe text."""
MAX_VOCABULARY = 2**20
MODELS = ("BPE", "Unigram")
RUN_CHARACTERS = 16_384
"""Length of the longest runs in the probe text, which reveal quadratic time."""


class WrongError(Exception):
    """The tokenizer's error and its remedy."""


def main() -> None:
    """Check the file on standard input."""
    _limit(resource.RLIMIT_AS, MEMORY_BYTES)
    _limit(resource.RLIMIT_CORE, 0)
    _limit_cpu(READ_SECONDS)
    try:
        response: dict[str, Any] = _check(sys.stdin.buffer.read())
    except WrongError as wrong:
        response = {"wrong": str(wrong)}
    print(json.dumps(response))


def probe_text() -> str:
    """Texts with runs on which regular expressions with nested repetition do not terminate."""
    runs = [letter * RUN_CHARACTERS for letter in ("a", " ", "\n", "1", "-", "é", "中")]
    for letter in string.printable:
        runs.append(letter * 64 + "\x00" + (letter + "b") * 32 + "\x00" + ("c" + letter) * 32)
    return "\x00".join(
        [*runs, "The quick brown fox isn't here.\r\n\tgrüße 中文 👨\u200d👩\u200d👧 <|endoftext|> </s>"]
    )


def _check(content: bytes) -> dict[str, Any]:
    text = _decoded(content)
    document = _parsed(text)
    _check_model(document)
    tokenizer = Tokenizer.from_str(text)
    vocabulary = _vocabulary(document, tokenizer)
    try:
        end_of_text = end_of_text_id(tokenizer)
    except ValueError as error:
        raise WrongError(str(error)) from None
    _limit_cpu(ENCODE_SECONDS)
    ids = for_preparing(tokenizer).encode(probe_text(), add_special_tokens=False).ids
    if not ids:
        raise WrongError("it turns text into no tokens at all: look at its normalizer and pre_tokenizer")
    _check_end_of_text(tokenizer, end_of_text)
    return {
        "vocabulary": vocabulary,
        "end_of_text": end_of_text,
        "end_of_text_token": tokenizer.id_to_token(end_of_text),
    }


def _check_end_of_text(tokenizer: Tokenizer, end_of_text: int) -> None:
    """Check that text that contains the token's name does not encode to the token."""
    name = tokenizer.id_to_token(end_of_text)
    if end_of_text in tokenizer.encode(f"{name} {name}a a{name}\n{name}", add_special_tokens=False).ids:
        raise WrongError(
            f"its end-of-text token {name!r} also comes from text that spells it, so a document could seem to end in "
            "its middle: give it a score of -1000 in model.vocab, or remove the merges that lead to it"
        )


def _limit_cpu(seconds: int) -> None:
    """Allow the process ``seconds`` more of CPU time."""
    _limit(resource.RLIMIT_CPU, int(time.process_time()) + 1 + seconds)


def _limit(kind: int, most: int) -> None:
    resource.setrlimit(kind, (most, resource.getrlimit(kind)[1]))


def _decoded(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise WrongError(
            f"it is not UTF-8 ({error.reason} at byte {error.start}): upload a tokenizer.json"
        ) from None


def _parsed(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except RecursionError:
        raise WrongError(
            "its JSON is nested too deeply: upload a tokenizer.json that `tokenizers` has written"
        ) from None
    except ValueError as error:
        raise WrongError(
            f"it is not JSON ({error}): upload a tokenizer.json that `tokenizers` has written"
        ) from None
    if not isinstance(document, dict) or not isinstance(document.get("model"), dict):
        raise WrongError(
            "it has no object `model`: upload the tokenizer.json, not tokenizer_config.json or vocab.json"
        )
    return document


def _check_model(document: dict[str, Any]) -> None:
    model = document["model"]
    kind = model.get("type")
    if kind in ("WordPiece", "WordLevel"):
        raise WrongError(
            f"model.type is {kind}, which turns all unknown words into one token, so texts cannot be restored: "
            f"use one of {', '.join(MODELS)}"
        )
    if kind not in MODELS:
        raise WrongError(f"model.type is {json.dumps(kind)[:80]}: use one of {', '.join(MODELS)}")
    if model.get("dropout"):
        raise WrongError("model.dropout is set, which encodes a text differently each time: set it to null")


def _vocabulary(document: dict[str, Any], tokenizer: Tokenizer) -> int:
    """Number of ids, after checking that no two tokens share one."""
    tokens = tokenizer.get_vocab(with_added_tokens=True)
    model, added = document["model"]["vocab"], document.get("added_tokens") or []
    listed = model.items() if isinstance(model, dict) else ((piece[0], n) for n, piece in enumerate(model))
    names: dict[int, str] = {}
    for name, number in [*listed, *((token["content"], token["id"]) for token in added)]:
        if names.setdefault(number, name) != name or tokens.get(name) != number:
            raise WrongError(
                f"token {name[:80]!r} has id {number}, but the token or the id appears twice: "
                "give every token an id of its own"
            )
    largest = max(names, default=0)
    if largest >= MAX_VOCABULARY:
        raise WrongError(f"its largest id is {largest:,}; a model's vocabulary ends below {MAX_VOCABULARY:,}")
    if largest + 1 < BYTES_VOCABULARY:
        raise WrongError(
            f"it has {largest + 1} ids; the smallest vocabulary is {BYTES_VOCABULARY}: use tokenizer kind `bytes`"
        )
    return largest + 1


if __name__ == "__main__":
    main()
