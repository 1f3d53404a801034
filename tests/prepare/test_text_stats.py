"""TextStats are exact counts for any script, batch or number of lines."""

import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainwright.prepare import text_stats
from trainwright.prepare.documents import hash_of
from trainwright.prepare.text_stats import TextStats, compute_text_stats

LETTERS = "ab é語हि\u0301Ⅷ  \n\n\t\u2003\u00a0 .,1"


def _measure(texts: list[str]) -> TextStats:
    return compute_text_stats(texts, [text.encode() for text in texts])


def _is_letter(character: str) -> bool:
    return unicodedata.category(character) in {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nl"}


def _naive(text: str) -> tuple[float, float, float]:
    visible = [character for character in text if not character.isspace()]
    lines = [line for line in text.split("\n") if line.strip()]
    repeated = sum(line in lines[:place] for place, line in enumerate(lines))
    words = text.split()
    return (
        sum(map(_is_letter, visible)) / len(visible) if visible else 0,
        repeated / len(lines) if lines else 0,
        sum(map(len, words)) / len(words) if words else 0,
    )


@settings(deadline=None, max_examples=200)
@given(
    texts=st.lists(st.one_of(st.text(alphabet=LETTERS), st.text(st.characters(codec="utf-8"))), max_size=8),
    batch=st.integers(1, 40),
    many=st.sampled_from([0, 100_000]),
)
def test_stats_equal_naive_counts(texts: list[str], batch: int, many: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_stats, "BATCH_CHARACTERS", batch)
        patch.setattr(text_stats, "MANY_LINES", many)
        found = _measure(texts)
    assert len(found) == len(texts)
    assert found.characters.tolist() == [len(text) for text in texts]
    assert found.hash.tobytes() == b"".join(hash_of(text.encode()) for text in texts)
    columns = (found.letter_fraction, found.repeated_line_fraction, found.mean_word_characters)
    for text, *counted in zip(texts, *columns, strict=True):
        assert counted == [np.float32(value) for value in _naive(text)]


def test_ascii_and_other_texts_are_counted_alike() -> None:
    ascii_, other = _measure(["one two, 3"]), _measure(["one two, 3", "é"])
    assert ascii_.letter_fraction[0] == other.letter_fraction[0] == np.float32(6 / 8)
    assert ascii_.mean_word_characters[0] == other.mean_word_characters[0] == np.float32(8 / 3)
