"""Learning rates compared with values calculated by hand, and properties of every schedule."""

import itertools

import pytest

from trainwright.contracts.training_spec import ScheduleKind, ScheduleSpec
from trainwright_trainer.optim.learning_rate import learning_rate_at


@pytest.mark.parametrize(
    ("kind", "step", "fraction"),
    [
        *((kind, 1, 0.1) for kind in ScheduleKind),  # a tenth of the warm-up
        *((kind, 10, 1.0) for kind in ScheduleKind),  # its end: the peak
        *((kind, 110, 0.1) for kind in ScheduleKind),  # the last step
        ("cosine", 60, 0.55),  # halfway down: the mean of 1 and 0.1
        ("cosine", 35, 0.1 + 0.9 * (1 + 2**-0.5) / 2),  # a quarter down: cos 45°
        ("linear", 60, 0.55),
        ("linear", 35, 0.775),
        ("wsd", 88, 1.0),  # a fifth of 110 steps is 22: the last one at the peak
        ("wsd", 99, 0.55),
    ],
)
def test_rates_by_hand(kind: ScheduleKind, step: int, fraction: float) -> None:
    schedule = ScheduleSpec(kind=kind, steps=110, warmup_steps=10, final_fraction=0.1)
    assert learning_rate_at(step, 2.0, schedule) == pytest.approx(2.0 * fraction)


@pytest.mark.parametrize("kind", ScheduleKind)
def test_an_unset_warmup_equals_its_documented_default(kind: ScheduleKind) -> None:
    automatic, given = (ScheduleSpec(kind=kind, steps=200, warmup_steps=warmup) for warmup in (None, 20))
    assert [learning_rate_at(step, 1.0, automatic) for step in range(1, 201)] == [
        learning_rate_at(step, 1.0, given) for step in range(1, 201)
    ]


def test_the_decay_of_wsd_is_as_long_as_requested() -> None:
    schedule = ScheduleSpec(
        kind=ScheduleKind.WSD, steps=100, warmup_steps=0, final_fraction=0.0, decay_steps=4
    )
    rates = [learning_rate_at(step, 1.0, schedule) for step in range(1, 101)]
    assert rates == [1.0] * 96 + [0.75, 0.5, 0.25, 0.0]


SHAPES = [(1, 0, 0.1), (2, 1, 0.0), (10, 9, 0.1), (100, 0, 0.0), (100, 30, 1.0), (997, 50, 0.1)]


@pytest.mark.parametrize("kind", ScheduleKind)
@pytest.mark.parametrize(("steps", "warmup", "final"), SHAPES)
def test_rates_rise_to_the_peak_and_then_only_fall(
    kind: ScheduleKind, steps: int, warmup: int, final: float
) -> None:
    schedule = ScheduleSpec(kind=kind, steps=steps, warmup_steps=warmup, final_fraction=final)
    rates = [learning_rate_at(step, 3.0, schedule) for step in range(1, steps + 1)]
    up, down = rates[:warmup], rates[max(warmup - 1, 0) :]
    assert all(one < other for one, other in itertools.pairwise(up))
    assert all(one >= other for one, other in itertools.pairwise(down))
    assert max(rates) <= 3.0
    assert not warmup or rates[warmup - 1] == 3.0
    assert rates[-1] == pytest.approx(3.0 * final)


@pytest.mark.parametrize("kind", ScheduleKind)
def test_there_are_no_jumps(kind: ScheduleKind) -> None:
    """The steepest kind is wsd: it falls by 0.9 of the peak over 200 of 1,000 steps.
    The warm-up rises over 100."""
    schedule = ScheduleSpec(kind=kind, steps=1_000, warmup_steps=100, final_fraction=0.1)
    rates = [learning_rate_at(step, 1.0, schedule) for step in range(1, 1_001)]
    assert max(abs(one - other) for one, other in itertools.pairwise(rates)) <= 1 / 100 + 1e-12


def test_without_warmup_the_first_step_is_nearly_at_the_peak() -> None:
    for kind in ScheduleKind:
        schedule = ScheduleSpec(kind=kind, steps=1_000, warmup_steps=0)
        assert learning_rate_at(1, 1.0, schedule) == pytest.approx(1.0, abs=1e-3)
