"""Fractions of a peak, compared with values calculated by hand."""

import pytest

from trainwright.contracts.job_spec import Peak
from trainwright_trainer.observe.step_timer import Timing
from trainwright_trainer.observe.throughput import Throughput


def _peak(tera: float, dtype: str) -> Peak:
    return Peak(flops_per_second=tera * 1e12, dtype=dtype, device="a GPU", measured=False)


@pytest.mark.parametrize(
    ("peak", "bf16_peak", "fractions"),
    [
        (None, None, {}),
        (_peak(10, "bf16"), None, {"mfu": 0.4}),
        (_peak(20, "fp8"), _peak(10, "bf16"), {"mfu": 0.2, "bf16_mfu": 0.4}),
        (None, _peak(10, "bf16"), {"bf16_mfu": 0.4}),
    ],
)
def test_mfu_is_reported_for_each_known_peak(
    peak: Peak | None, bf16_peak: Peak | None, fractions: dict[str, float]
) -> None:
    """1,000 tokens of 32 GFLOP in 4 seconds on two ranks are 4 TFLOP/s on each."""
    throughput = Throughput(
        steps=5,
        tokens_per_step=1_000,
        flops_per_token=32_000_000_000,
        ranks=2,
        peak=peak,
        bf16_peak=bf16_peak,
    )
    values = throughput.values(1, {Timing.FORWARD: 1.5, Timing.BACKWARD: 2.5})
    assert values["tokens_per_second"] == 250
    assert {name: value for name, value in values.items() if "mfu" in name} == pytest.approx(fractions)


def test_hfu_counts_recomputation_and_is_absent_without_mfu() -> None:
    """The device computes a quarter more FLOPs than the model needs: 4 TFLOP/s of the model are 5 of the device."""

    def values_of(peak: Peak | None, again: int) -> dict[str, float]:
        throughput = Throughput(
            steps=5,
            tokens_per_step=1_000,
            flops_per_token=32_000_000_000,
            ranks=2,
            peak=peak,
            bf16_peak=None,
            recomputed_flops_per_token=again,
        )
        return throughput.values(1, {Timing.FORWARD: 4.0})

    for again, hfu in ((0, 0.4), (8_000_000_000, 0.5)):
        values = values_of(_peak(10, "bf16"), again)
        assert (values["mfu"], values["hfu"]) == pytest.approx((0.4, hfu))
    assert "hfu" not in values_of(None, 8_000_000_000)
