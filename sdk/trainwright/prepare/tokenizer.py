"""Tokenizers: how text becomes token ids, and back without loss.

Both kinds work on bytes, so every text has ids and comes back unchanged:

- ``bytes``: the 256 byte values are the ids 0..255, and 256 is the end-of-text token;
- ``bpe``: byte-pair encoding (Sennrich et al. 2016, on bytes as in GPT-2) merges frequent neighbours until the
  vocabulary has the size asked for. A small dataset may run out of pairs earlier; the model's vocabulary stays the
  size asked for all the same, so that the shape of a network never depends on the data.

A tokenizer is a ``tokenizer.json`` in the format of the `tokenizers` library, which `transformers` reads as it is.
It is trained on a sample of bounded size whose choice depends on the texts alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from trainwright.contracts.run_spec import TokenizerKind, TokenizerSpec
from trainwright.prepare.documents import Document, Slice, Source, is_validation, read_documents, sample_rank

END_OF_TEXT = "<|endoftext|>"
SAMPLE_BYTES = 64 * 2**20
"""Most text that a BPE is trained on."""
SAMPLE_SLICES = 16
"""Most slices that the sample is drawn from, so that choosing it takes seconds for any dataset."""


def train_tokenizer(
    sources: Sequence[Source], slices: Sequence[Slice], spec: TokenizerSpec, validation_fraction: float
) -> Tokenizer:
    """The tokenizer of a dataset: a pure function of its files, ``spec`` and the split.

    Documents of the validation split are left out of the sample.
    """
    if spec.kind is TokenizerKind.BYTES:
        return byte_tokenizer()
    return _train_bpe(_sample(sources, slices, validation_fraction), spec.size)


def byte_tokenizer() -> Tokenizer:
    """257 tokens: the byte values and the end of a text."""
    tokenizer = Tokenizer(BPE(vocab={letter: byte for byte, letter in enumerate(_letters())}, merges=[]))
    return _finished(tokenizer)


def load_tokenizer(path: Path) -> Tokenizer:
    """Read a ``tokenizer.json`` for preparing data: a document that spells a special token gets no special token."""
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.encode_special_tokens = True
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, path: Path) -> None:
    path.write_bytes(tokenizer_bytes(tokenizer))


def tokenizer_bytes(tokenizer: Tokenizer) -> bytes:
    """Content of its ``tokenizer.json``."""
    return tokenizer.to_str(pretty=True).encode()


def end_of_text_id(tokenizer: Tokenizer) -> int:
    token = tokenizer.token_to_id(END_OF_TEXT)
    if token is None:
        raise ValueError(f"the tokenizer has no token {END_OF_TEXT}")
    return token


def _train_bpe(texts: Iterator[str], vocabulary: int) -> Tokenizer:
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


def _finished(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.add_special_tokens([AddedToken(END_OF_TEXT, special=True, normalized=False)])
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    tokenizer.encode_special_tokens = True
    return tokenizer


def _letters() -> list[str]:
    """The visible letter by which byte-level tokenizers write each byte value (GPT-2's table)."""
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return [chr(byte) if byte in visible else chr(256 + hidden.index(byte)) for byte in range(256)]


def _sample(sources: Sequence[Source], slices: Sequence[Slice], validation_fraction: float) -> Iterator[str]:
    """Training texts of at most ``SAMPLE_BYTES``: slices by a hash of their place, documents by a hash of their text."""
    by_name = {source.name: source for source in sources}
    chosen = sorted(slices, key=lambda part: sample_rank(f"{part.file}\n{part.start}"))[:SAMPLE_SLICES]
    share = SAMPLE_BYTES / max(sum(part.end - part.start for part in chosen), 1)
    left = SAMPLE_BYTES
    for part in chosen:
        for found in read_documents(by_name[part.file], part):
            if not isinstance(found, Document) or is_validation(found.text, validation_fraction):
                continue
            size = len(found.text.encode())
            if sample_rank(found.text) < share and size <= left:
                left -= size
                yield found.text
