"""Ranks that compute longer than others with the same layers are scored and reported once; noise is not reported."""

import numpy as np
import pytest

from trainwright.contracts.series import RANK_SERIES
from trainwright_trainer.observe.step_timer import Timing
from trainwright_trainer.observe.stragglers import SLOW_FRACTION, WINDOW, Stragglers

LINE = [(0, 1, 2, 3)]


def times(*work: float, collectives: float = 5.0) -> dict[str, float]:
    """Series values of ranks that compute for ``work`` seconds, half of it forward."""
    found = {}
    for rank, seconds in enumerate(work):
        parts = dict.fromkeys(Timing, 0.0)
        parts |= {Timing.FORWARD: seconds / 2, Timing.BACKWARD: seconds / 2, Timing.COLLECTIVES: collectives}
        found |= {f"{RANK_SERIES}/{rank}:{timing}": spent for timing, spent in parts.items()}
    return found


def reports(stragglers: Stragglers, measurements: list[dict[str, float]]) -> list[tuple[int, int]]:
    """Measurement and rank of each report."""
    return [
        (number, rank)
        for number, measured in enumerate(measurements, start=1)
        for rank, _ in stragglers.new_ones(stragglers.observe(measured))
    ]


def test_a_rank_that_remains_a_tenth_slower_is_reported_once() -> None:
    assert reports(Stragglers(LINE), [times(1, 1, 1.12, 1)] * 40) == [(WINDOW, 2)]


def test_it_is_reported_again_after_it_has_recovered() -> None:
    slow, even = times(1, 1, 1, 1.3), times(1, 1, 1, 1)
    found = reports(Stragglers(LINE), [slow] * 12 + [even] * 12 + [slow] * 12)
    assert [rank for _, rank in found] == [3, 3]


def test_the_score_is_how_much_longer_a_rank_computes() -> None:
    stragglers = Stragglers(LINE)
    for _ in range(WINDOW - 1):
        assert stragglers.observe(times(1, 1, 1.5, 1)) == {}, "too few measurements"
    scores = stragglers.observe(times(1, 1, 1.5, 1))
    assert scores == pytest.approx({0: 0.0, 1: 0.0, 2: 0.5, 3: 0.0})


def test_single_slow_steps_and_noise_are_not_reported() -> None:
    drawn = np.random.default_rng(0)
    noisy = [times(*drawn.normal(1.0, 0.03, 4)) for _ in range(300)]
    noisy[50:54] = [times(1, 9, 1, 1)] * 4  # fewer than half of a window
    assert reports(Stragglers(LINE), noisy) == []


def test_ranks_of_other_stages_are_not_compared() -> None:
    assert reports(Stragglers([(0, 1), (2, 3)]), [times(1, 1, 2, 2)] * 20) == []
    assert reports(Stragglers([(0, 1), (2, 3)]), [times(1, 1, 2, 2.4)] * 20) == [(WINDOW, 3)]


def test_a_stage_with_one_rank_has_no_score() -> None:
    assert Stragglers([(0,), (1,)]).observe(times(1, 2)) == {}


def test_ranks_that_vary_much_are_not_slow() -> None:
    """On a machine with more ranks than cores every rank is the slower one now and then."""
    drawn = np.random.default_rng(0)
    busy = [times(*drawn.lognormal(0.0, 0.3, 2)) for _ in range(100)]
    stragglers = Stragglers([(0, 1)])
    scores = [stragglers.observe(measured) for measured in busy]
    assert max(score.get(rank, 0) for score in scores for rank in (0, 1)) > SLOW_FRACTION, "the median alone"
    assert reports(Stragglers([(0, 1)]), busy) == []


def test_ranks_on_the_cores_of_one_node_are_compared_with_other_nodes_only() -> None:
    assert reports(Stragglers([(0, 1)], ranks_sharing_cores=2), [times(1, 1.3)] * 20) == []
    slow_node = Stragglers([(0, 1, 2, 3)], ranks_sharing_cores=2)
    assert reports(slow_node, [times(1.0, 1.2, 1.4, 1.5)] * 20) == [(WINDOW, 2), (WINDOW, 3)]
