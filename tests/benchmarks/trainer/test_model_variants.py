"""Model variants have the plain model's size, are trained at their best learning rate, and judged by their interval."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.benchmarks.trainer import model_variants
from tests.benchmarks.trainer.model_variants import PLAIN, VARIANTS, Variant, model_of, verdict
from tests.benchmarks.trainer.paired_differences import Difference
from tests.benchmarks.trainer.paired_runs import Plan
from tests.parity.learning import prepare
from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.presets import PRESETS
from trainwright.planner.flops import count_parameters

NANO = Plan(Path(), PRESETS["nano"].model_dump(mode="json"))


def _parameters(model: ModelSpec) -> int:
    return count_parameters(model, 2_048, NANO.sequence_tokens).total


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_has_as_many_parameters_as_the_plain_model(name: str) -> None:
    found = model_of(VARIANTS[name], NANO, 2_048)
    assert _parameters(found) == pytest.approx(_parameters(PRESETS["nano"]), rel=0.005)
    differing = {field for field, value in found if value != getattr(PRESETS["nano"], field)}
    assert differing - {"feed_forward"} == set(VARIANTS[name].model)


def test_a_variant_that_cannot_have_as_many_parameters_is_refused() -> None:
    with pytest.raises(ValueError, match="parameters at best"):
        model_of(Variant(model={"layers": 50}), NANO, 2_048)


@pytest.mark.parametrize(
    ("percents", "shown"),
    [
        ([-1.0, -1.1, -0.9], "goal"),
        ([0.0, 0.1, -0.1], "pass"),
        ([2.0, 2.1, 1.9], "no"),
        ([0.4, 0.6, 0.5], "not shown"),
        ([-3.0, 3.0, 0.0], "not shown"),
    ],
)
def test_the_interval_decides_what_is_shown(percents: list[float], shown: str) -> None:
    assert verdict(Difference.of(percents)) == shown


@pytest.mark.slow(target="bench-dry")
def test_variants_are_tuned_trained_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, variant in VARIANTS.items():
        monkeypatch.setitem(
            VARIANTS, name, replace(variant, rates=variant.rates[:2] if name == PLAIN else variant.rates[:1])
        )
    plan = replace(
        NANO,
        data=prepare(tmp_path),
        sequence_tokens=32,
        sequences=2,
        steps=8,
        seeds=(1, 2),
        validation_sequences=8,
    )
    losses = model_variants.losses(plan, processes=1)
    assert list(losses) == list(VARIANTS) and all(len(ends) == 2 for ends in losses.values())
    assert len({tuple(ends) for ends in losses.values()}) == len(VARIANTS)
    assert set(model_variants.entries(losses)) == {f"variants-{name}" for name in VARIANTS if name != PLAIN}
    assert "learning rates: plain " in capsys.readouterr().out
