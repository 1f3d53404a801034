"""Spikes of the loss: found after ten steps above mean + 6σ, reported once, and not found in noise."""

from __future__ import annotations

import numpy as np

from trainwright_trainer.observe.loss_spikes import SPIKE_STEPS, WINDOW_STEPS, LossSpikes


def _reports(losses: list[float]) -> list[int]:
    """Steps at which a spike is reported."""
    spikes = LossSpikes()
    return [step for step, loss in enumerate(losses, start=1) if spikes.observe(loss) is not None]


def _noisy(count: int, mean: float = 3.0) -> list[float]:
    return list(np.random.default_rng(0).normal(mean, 0.05, count))


def test_a_spike_is_reported_at_its_tenth_step_and_once() -> None:
    assert _reports(_noisy(200) + _noisy(40, mean=4.0) + _noisy(50)) == [210]


def test_a_lasting_increase_is_reported_once() -> None:
    assert _reports(_noisy(200) + _noisy(500, mean=4.0)) == [210]


def test_fewer_high_steps_are_not_a_spike() -> None:
    high = [9.0] * (SPIKE_STEPS - 1)
    assert _reports(_noisy(200) + high + [3.0] + high + _noisy(50)) == []


def test_nothing_is_found_in_noise_in_a_falling_loss_or_before_the_window_is_full() -> None:
    assert _reports(_noisy(5_000)) == []
    assert _reports([5 / step**0.3 for step in range(1, 2_000)]) == []
    assert _reports([3.0] * (WINDOW_STEPS - 1) + [9.0] * 5) == []


def test_the_report_contains_the_limit() -> None:
    spikes = LossSpikes()
    for step in range(WINDOW_STEPS):
        assert spikes.observe(3.0 + 0.1 * (-1) ** step) is None
    reports = [spikes.observe(4.0) for _ in range(SPIKE_STEPS)]
    assert reports[:-1] == [None] * (SPIKE_STEPS - 1)
    assert "above 3.6000 for 10 steps" in (reports[-1] or "")
