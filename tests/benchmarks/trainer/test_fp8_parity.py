"""FP8 is judged against bfloat16 by paired runs: the runs, their intervals, and what passes."""

import random
from pathlib import Path

import pytest

from tests.benchmarks import cpu
from tests.benchmarks.trainer import fp8_parity
from tests.benchmarks.trainer.fp8_parity import Verdict, bound_for, judge
from tests.benchmarks.trainer.paired_differences import POWER, Difference, power, seeds_needed, students_t
from tests.benchmarks.trainer.paired_runs import Plan
from tests.parity.learning import prepare


@pytest.mark.slow(target="bench-dry")
def test_pairs_are_trained_and_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = Plan(
        prepare(tmp_path),
        {"layers": 1, "width": 32, "heads": 2},
        sequence_tokens=32,
        sequences=4,
        steps=4,
        seeds=(1, 2),
        learning_rate=3e-3,
        validation_sequences=8,
    )
    losses = fp8_parity.losses(plan, processes=1)
    assert all(len(ends) == 2 for ends in losses.values())
    assert losses["bf16"] != losses["O2"]
    assert set(cpu.judge_parity(losses)) == {"parity-O1", "parity-O2", "parity-O3"}
    assert "bf16, rows reversed" in capsys.readouterr().out


def _sample(mean: float, deviation: float, seeds: int) -> Difference:
    """The difference of evenly spread numbers with exactly this mean and deviation."""
    numbers = [place - (seeds - 1) / 2 for place in range(seeds)]
    unit = Difference.of(numbers).deviation
    return Difference.of([mean + deviation * number / unit for number in numbers])


NARROW_CONTROL = _sample(0.0, 0.2, 12)


@pytest.mark.parametrize(
    ("level", "verdict"),
    [
        pytest.param(_sample(0.0, 0.2, 12), Verdict.PASSED, id="narrow, around zero"),
        pytest.param(_sample(-0.4, 0.2, 12), Verdict.PASSED, id="narrow, better"),
        pytest.param(_sample(0.3, 0.2, 12), Verdict.PASSED, id="narrow, biased within the bound"),
        pytest.param(_sample(0.45, 0.2, 12), Verdict.NOT_SHOWN, id="narrow, biased up to the bound"),
        pytest.param(_sample(0.8, 0.2, 12), Verdict.FAILED, id="narrow, biased"),
        pytest.param(_sample(0.0, 1.2, 12), Verdict.NOT_SHOWN, id="wide, around zero"),
        pytest.param(_sample(0.3, 3.0, 12), Verdict.NOT_SHOWN, id="very wide, around zero"),
        pytest.param(_sample(-1.0, 1.5, 12), Verdict.NOT_SHOWN, id="wide, within the bound by chance"),
        pytest.param(_sample(3.0, 1.2, 12), Verdict.FAILED, id="wide, biased"),
        pytest.param(_sample(0.0, 0.2, 2), Verdict.NOT_SHOWN, id="two seeds"),
    ],
)
def test_a_level_passes_if_a_difference_above_the_bound_is_excluded(
    level: Difference, verdict: Verdict
) -> None:
    assert judge(level, bound_for(NARROW_CONTROL)) is verdict


@pytest.mark.parametrize(
    ("control", "bound"),
    [
        pytest.param(_sample(0.0, 0.2, 12), 0.5, id="narrow"),
        pytest.param(_sample(0.3, 0.2, 12), 1.5 * 0.4271, id="biased"),
        pytest.param(_sample(0.0, 3.0, 12), 0.5, id="wide"),
        pytest.param(_sample(0.0, 0.2, 2), 0.5, id="two seeds"),
        pytest.param(_sample(2.0, 0.2, 12), 0.5, id="worse than the bound itself"),
    ],
)
def test_a_control_raises_the_bound_only_if_it_is_within_it(control: Difference, bound: float) -> None:
    """A wide control would let any equally wide level pass."""
    assert bound_for(control) == pytest.approx(bound, abs=1e-3)


def test_a_wide_level_does_not_pass_with_an_equally_wide_control() -> None:
    """It would pass if an interval that contains 0, or is as wide as the control's, were enough."""
    wide = [1.0, -0.9, 0.7, -1.1, 0.4, -0.2]
    assert judge(Difference.of(wide), bound_for(Difference.of(wide))) is Verdict.NOT_SHOWN


def test_an_interval_uses_students_t() -> None:
    """Of 1, 2, 3: mean 2, deviation 1, 4.303 / √3."""
    difference = Difference.of([1.0, 2.0, 3.0])
    assert (difference.mean, difference.half_width) == pytest.approx((2.0, 2.4843), abs=1e-3)


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(1, 12.7062), (2, 4.30265), (5, 2.57058), (15, 2.13145), (30, 2.04227)]
)
def test_quantiles_equal_published_tables(freedom: int, quantile: float) -> None:
    assert students_t(freedom) == pytest.approx(quantile, rel=2e-4)


@pytest.mark.parametrize(("deviation", "seeds"), [(0.42, 6), (0.42, 12), (0.85, 12), (0.2, 3)])
def test_power_is_how_often_equal_trainings_pass(deviation: float, seeds: int) -> None:
    draw, count = random.Random(0), 4_000
    samples = [Difference.of([draw.gauss(0, deviation) for _ in range(seeds)]) for _ in range(count)]
    quantile = students_t(seeds - 1)
    ends = [found.mean + quantile * found.deviation / seeds**0.5 for found in samples]
    # The fraction of n samples has a deviation of at most 1 / √(4 n) = 0.008.
    assert power(deviation, seeds, 0.5) == pytest.approx(sum(end <= 0.5 for end in ends) / count, abs=0.025)


@pytest.mark.parametrize("deviation", [0.2, 0.42, 0.85])
def test_the_seeds_needed_are_the_fewest_with_the_required_power(deviation: float) -> None:
    needed = seeds_needed(deviation, 0.5)
    assert needed is not None
    enough, too_few = (power(deviation, seeds, 0.5) for seeds in (needed, needed - 1))
    assert enough >= POWER > too_few
    assert seeds_needed(100.0, 0.5) is None


def test_pairs_have_the_same_seed() -> None:
    found = fp8_parity.differences({"bf16": [5.0, 4.0, 2.0], "O2": [5.05, 4.08, 2.06]})["O2"]
    assert (found.mean, found.deviation, found.seeds) == pytest.approx((2.0, 1.0, 3))


@pytest.mark.parametrize(
    ("percent", "reached"), [(0.0, "goal"), (0.3, "pass"), (2.0, "no"), (0.499, "not shown")]
)
def test_an_entry_reports_what_was_shown(
    percent: float, reached: str, capsys: pytest.CaptureFixture[str]
) -> None:
    noise = [-0.1, 0.0, 0.1] * 4
    losses = {name: [5.0 * (1 + one / 100) for one in noise] for name in fp8_parity.VARIANTS}
    losses["bf16"] = [5.0 for _ in noise]
    losses["O2"] = [5.0 * (1 + (percent + one) / 100) for one in noise]
    entry = cpu.judge_parity(losses)["parity-O2"]
    assert entry.reached == reached
    assert (entry.passes, entry.ratio) == pytest.approx((1.005, 1 + percent / 100))
    assert "power 1.00" in capsys.readouterr().out
