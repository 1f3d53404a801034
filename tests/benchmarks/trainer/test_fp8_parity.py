"""FP8 is judged against bfloat16 by paired runs: the runs, the intervals and the three ways to pass."""

from pathlib import Path

import pytest

from tests.benchmarks import cpu
from tests.benchmarks.trainer import fp8_parity
from tests.parity.learning import prepare


@pytest.mark.slow(target="bench-dry")
def test_pairs_are_trained_and_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = fp8_parity.Plan(
        prepare(tmp_path),
        {"layers": 1, "width": 32, "heads": 2},
        sequence_tokens=32,
        sequences=4,
        steps=4,
        seeds=(1, 2),
        learning_rates=(3e-3,),
        validation_sequences=8,
    )
    losses = fp8_parity.losses(plan, processes=1)
    assert all(len(ends) == 2 for ends in losses.values())
    assert losses["bf16"] != losses["O2"]
    assert set(cpu.judge_parity(losses)) == {"parity-O1", "parity-O2", "parity-O3"}
    assert "bf16, rows reversed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("percents", "control", "why"),
    [
        ([0.1, 0.11, 0.12], [0.0, 0.1, -0.1], "upper end at most 0.25 %"),
        ([1.0, -0.5, 0.2], [0.0, 0.1, -0.1], "the interval contains 0"),
        ([1.0, 1.1, 1.2], [1.0, -1.0, 0.5], "upper end at most 1.5 × the control's spread"),
        ([1.0, 1.1, 1.2], [0.0, 0.1, -0.1], None),
    ],
)
def test_there_are_three_ways_to_pass_and_one_to_fail(
    percents: list[float], control: list[float], why: str | None
) -> None:
    found = fp8_parity.why_it_passes(fp8_parity.Difference.of(percents), fp8_parity.Difference.of(control))
    assert found is None if why is None else found is not None and found.startswith(why)


def test_an_interval_uses_students_t() -> None:
    """Of 1, 2, 3: mean 2, deviation 1, 4.303 / √3."""
    difference = fp8_parity.Difference.of([1.0, 2.0, 3.0])
    assert (difference.mean, difference.half_width) == pytest.approx((2.0, 2.4843), abs=1e-4)
