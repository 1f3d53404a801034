"""Tokenizers: from text to token ids and back, without loss.

Both kinds work on bytes, so every text has ids and comes back unchanged:

- ``bytes``: the 256 byte values are the ids 0..255, and 256 is the end-of-text token;
- ``bpe``: byte-pair encoding (Sennrich et al. 2016, on bytes as in GPT-2) merges frequent neighbours until
  the vocabulary has the requested size. A small dataset may run out of pairs earlier; the model's vocabulary
  still has the requested size, so that the shape of a network never depends on the data.

A tokenizer is a ``tokenizer.json`` in the format of the `tokenizers` library, which `transformers` reads as it is. It
is trained on a sample of bounded size whose choice depends on the texts alone. An uploaded one acts like a program,
because it contains regular expressions, tables and sizes. So it is first tried in a separate process
(`probe_tokenizer`), before any other code reads it. Encoding texts is in `encode`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

END_OF_TEXT = "<|endoftext|>"
"""The end-of-text token of tokenizers that are trained here."""
END_OF_TEXT_TOKENS = (
    END_OF_TEXT,
    "<|end_of_text|>",
    "</s>",
    "<eos>",
    "[EOS]",
    "<|eos|>",
    "<|EOS|>",
    "<｜end▁of▁sentence｜>",
)
"""End-of-text tokens of common tokenizers, most likely first."""
MAX_TOKENIZER_BYTES = 64 * 2**20
"""Largest accepted ``tokenizer.json``. Those of models with 256k tokens have about 35 MB."""
CHECK_SECONDS = 120
"""Wall-clock limit for the check of an uploaded tokenizer. Its own limit on CPU time is tighter."""


def train_bpe(texts: Iterator[str], vocabulary: int) -> Tokenizer:
    """A byte-level BPE of at most ``vocabulary`` tokens; a pure function of the texts, which are read once."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    trainer = BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return _finished(tokenizer)


def byte_tokenizer() -> Tokenizer:
    """257 tokens: the byte values and the end of a text."""
    tokenizer = Tokenizer(BPE(vocab={letter: byte for byte, letter in enumerate(byte_letters())}, merges=[]))
    return _finished(tokenizer)


def load_tokenizer(path: Path) -> Tokenizer:
    """Read a ``tokenizer.json`` for preparing data.

    A special token that occurs in a document is encoded as text, and no document is cut or padded to a fixed length.
    """
    return for_preparing(Tokenizer.from_file(str(path)))


def for_preparing(tokenizer: Tokenizer) -> Tokenizer:
    """``tokenizer`` itself, set to encode whole documents and to treat special tokens in them as text."""
    tokenizer.encode_special_tokens = True
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, path: Path) -> None:
    path.write_bytes(tokenizer_bytes(tokenizer))


def tokenizer_bytes(tokenizer: Tokenizer) -> bytes:
    """Content of its ``tokenizer.json``."""
    return tokenizer.to_str(pretty=True).encode()


def end_of_text_id(tokenizer: Tokenizer) -> int:
    """Id of the special token that ends a text.

    Raises:
        ValueError: none of ``END_OF_TEXT_TOKENS`` is a special token of ``tokenizer``.
    """
    special = {
        token.content: number
        for number, token in tokenizer.get_added_tokens_decoder().items()
        if token.special
    }
    for name in END_OF_TEXT_TOKENS:
        if name in special:
            return special[name]
    raise ValueError(
        f"no special token ends a text: looked for {', '.join(END_OF_TEXT_TOKENS)}; "
        "add one of them to added_tokens, with special: true"
    )


def encode_prompt(tokenizer: Tokenizer, prompt: str) -> list[int]:
    """Ids of a text that a model should continue, encoded like the documents on which it was trained. An uploaded
    tokenizer's own truncation, padding and template are not used. A prompt without ids becomes an end-of-text token.
    """
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer.encode(prompt, add_special_tokens=False).ids or [end_of_text_id(tokenizer)]


class UnusableTokenizerError(ValueError):
    """A ``tokenizer.json`` that cannot be used; the text says why, and what to do."""


@dataclass(frozen=True)
class CheckedTokenizer:
    """The properties of an uploaded tokenizer."""

    vocabulary: int
    """Number of token ids: the largest plus one."""

    end_of_text: int
    """Id of the token that ends a text."""

    end_of_text_token: str
    """That token, as `END_OF_TEXT_TOKENS` has it."""


def check_tokenizer(content: bytes) -> CheckedTokenizer:
    """Try an uploaded ``tokenizer.json`` in a process with bounded time and memory.

    Raises:
        UnusableTokenizerError: it cannot be used.
    """
    if len(content) > MAX_TOKENIZER_BYTES:
        raise UnusableTokenizerError(
            f"the file has {len(content):,} bytes, more than {MAX_TOKENIZER_BYTES:,}: "
            "upload the tokenizer.json alone, not the model"
        )
    try:
        probe = subprocess.run(
            [sys.executable, "-P", "-m", "trainwright.prepare.probe_tokenizer"],
            input=content,
            capture_output=True,
            timeout=CHECK_SECONDS,
            env=_probe_environment(),
        )
    except subprocess.TimeoutExpired:
        raise UnusableTokenizerError(_TOO_SLOW) from None
    if probe.returncode != 0:
        raise UnusableTokenizerError(_why_it_failed(probe))
    response = json.loads(probe.stdout)
    if "wrong" in response:
        raise UnusableTokenizerError(response["wrong"])
    return CheckedTokenizer(**response)


_TOO_SLOW = (
    "reading it, or encoding a short text with it, takes too long: look for a regular expression with nested repetition "
    "in pre_tokenizer or normalizer, and simplify it"
)


def _probe_environment() -> dict[str, str]:
    """The variables that Python needs to start, without this process's secrets."""
    needed = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "PYTHONPATH") if name in os.environ}
    return {**needed, "TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"}


def _why_it_failed(probe: subprocess.CompletedProcess[bytes]) -> str:
    last = (probe.stderr.decode(errors="replace").strip().splitlines() or [""])[-1][:300]
    if probe.returncode == -signal.SIGXCPU or "Regex search error" in last:
        return _TOO_SLOW
    if probe.returncode < 0 or last.startswith("MemoryError"):
        return "reading it takes more than 2 GiB of memory: upload a tokenizer with fewer or shorter tokens"
    return f"the library `tokenizers` does not read it ({last}): upload a tokenizer.json that it has written"


def _finished(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.add_special_tokens([AddedToken(END_OF_TEXT, special=True, normalized=False)])
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    tokenizer.encode_special_tokens = True
    return tokenizer


def byte_letters() -> list[str]:
    """The visible letter by which byte-level tokenizers write each byte value (GPT-2's table)."""
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return [chr(byte) if byte in visible else chr(256 + hidden.index(byte)) for byte in range(256)]
