"""Tokens are drawn at any temperature that a spec may have."""

import pytest
import torch

from trainwright_trainer.model.next_token import draw_token

LOGITS = torch.tensor([1.0, 9.5, 9.0, -30.0])


def draw(temperature: float, seed: int = 1) -> int:
    return draw_token(LOGITS, temperature, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("temperature", [0.0, 1e-3, 1e-38, 1e-300, 5e-324])
def test_low_temperatures_take_the_most_likely_token(temperature: float) -> None:
    """Dividing float32 logits by these temperatures would overflow."""
    assert draw(temperature) == 1


def test_sampled_tokens_follow_the_probabilities() -> None:
    drawn = [draw(1.0, seed) for seed in range(2_000)]
    assert drawn.count(1) / len(drawn) == pytest.approx(0.62, abs=0.05)  # 1 / (1 + e^-0.5)
    assert set(drawn) <= {0, 1, 2}
