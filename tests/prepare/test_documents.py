"""Held-out, sampled and mixed documents are chosen independently, by their texts alone."""

import numpy as np
import pytest

from trainwright.prepare.documents import hash_of, is_validation, mix_ranks, sample_rank

TEXTS = [f"document {number}" for number in range(20_000)]
HASHES = np.frombuffer(b"".join(hash_of(text.encode()) for text in TEXTS), np.uint8).reshape(-1, 16)


def test_the_split_has_its_fraction_and_never_moves_a_text() -> None:
    held = {text for text in TEXTS if is_validation(text, 0.1)}
    assert len(held) == pytest.approx(2_000, abs=170)  # four standard deviations of 42
    assert held <= {text for text in TEXTS if is_validation(text, 0.2)}
    assert not any(is_validation(text, 0.0) for text in TEXTS)


def test_split_sample_and_mixture_are_chosen_independently() -> None:
    held = np.array([is_validation(text, 0.5) for text in TEXTS])
    sampled = np.array([sample_rank(text) < 0.5 for text in TEXTS])
    mixed = mix_ranks(HASHES) < 0.5
    share = 1 / 8
    for item in (held, ~held):
        for two in (sampled, ~sampled):
            for three in (mixed, ~mixed):
                # Five standard deviations of √(⅛ · ⅞ / 20,000).
                assert (item & two & three).mean() == pytest.approx(share, abs=0.012)


def test_ranks_of_a_mixture_are_uniform_in_0_to_1_and_never_reach_1() -> None:
    ranks = mix_ranks(HASHES)
    assert np.histogram(ranks, 10, (0, 1))[0] == pytest.approx(np.full(10, 2_000), abs=215)
    assert mix_ranks(np.full((1, 16), 255, np.uint8))[0] < 1
    assert mix_ranks(HASHES[5:6])[0] == ranks[5]
