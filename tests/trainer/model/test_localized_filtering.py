"""Localized filtering attention follows the paper's formulas and is causal, in training and decoding and in every
layout."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from tests.trainer.jobs import TINY, train_here, write_job
from tests.trainer.model.option_trainings import FP8, FP32, build, learned
from trainwright.contracts.base import problems
from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.run_spec import RunSpec
from trainwright.planner.flops import count_parameters, flops_per_token
from trainwright.planner.plan import plan
from trainwright_trainer.checkpoint.export import load_export
from trainwright_trainer.main import main
from trainwright_trainer.model import localized_filtering
from trainwright_trainer.model.localized_filtering import LocalFilter, empty_state
from trainwright_trainer.parallel.tensor import parallelize

WIDTH, LENGTH = 8, 7
SPEC = ModelSpec(layers=2, width=32, heads=4, kv_heads=2, attention="localized_filtering")


def random_filter() -> LocalFilter:
    torch.manual_seed(0)
    made = LocalFilter(WIDTH)
    with torch.no_grad():
        for weight in made.parameters():  # biases and norm too
            weight.normal_()
    return made


def by_formula(given: LocalFilter, x_TD: Tensor) -> Tensor:
    """Yuan 2.0, section 2.1, token by token. The first matrix has all columns of the previous token first, the second
    has a pair of columns for each feature."""
    first, second = given.first.weight, given.second.weight
    half, zero = WIDTH // 2, torch.zeros
    h_TE = [
        first[:, :WIDTH] @ (x_TD[t - 1] if t else zero(WIDTH))
        + first[:, WIDTH:] @ x_TD[t]
        + given.first_bias.weight
        for t in range(len(x_TD))
    ]
    found = []
    for t, x_D in enumerate(x_TD):
        before = h_TE[t - 1] if t else zero(half)
        z_D = x_D + second[:, 0::2] @ before + second[:, 1::2] @ h_TE[t] + given.second_bias.weight
        found.append(z_D / (z_D.square().mean() + 1e-6).sqrt() * given.norm.weight)
    return torch.stack(found)


def apart_from_formula(compute: Callable[[LocalFilter, Tensor], Tensor]) -> float:
    given, x_TD = random_filter(), torch.randn(LENGTH, WIDTH, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        return float((compute(given, x_TD[None])[0] - by_formula(given, x_TD)).abs().max())


def decoded(given: LocalFilter, x_BTD: Tensor, prompt: int) -> Tensor:
    """The prompt in one pass, then token by token."""
    state, found = empty_state(x_BTD), []
    for part_BTD in (x_BTD[:, :prompt], *x_BTD[:, prompt:].split(1, dim=1)):
        y_BTD, state = given.continue_from(state, part_BTD)
        found.append(y_BTD)
    return torch.cat(found, dim=1)


CLOSE = 64 * 2.0**-22
"""Three matmuls in sequence, of sums of at most 16 terms of order 1 in float32."""


def test_a_filter_mixes_each_token_with_the_two_before() -> None:
    assert apart_from_formula(lambda given, x_BTD: given(x_BTD)) <= CLOSE


@pytest.mark.parametrize("prompt", [1, 2, 3, LENGTH])
def test_decoding_from_the_saved_state_computes_the_same(prompt: int) -> None:
    """After a prompt of one token, Yuan's public decoder computes a different second token."""
    assert apart_from_formula(partial(decoded, prompt=prompt)) <= CLOSE


def test_a_first_bias_before_the_first_token_is_detected() -> None:
    def as_published(given: LocalFilter, x_BTD: Tensor) -> Tensor:
        empty = empty_state(x_BTD)
        nothing = empty._replace(tokens=empty.tokens + 2)
        return given.continue_from(nothing, x_BTD)[0]

    assert apart_from_formula(as_published) > 0.1


@pytest.mark.parametrize("shift", [0, 2])
def test_a_wrong_previous_token_is_detected(shift: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def shifted(x_BTD: Tensor, is_first_BT1: None = None) -> Tensor:
        return torch.nn.functional.pad(x_BTD, (0, 0, shift, 0))[:, : x_BTD.shape[1]]

    monkeypatch.setattr(localized_filtering, "previous", shifted)
    assert apart_from_formula(lambda given, x_BTD: given(x_BTD)) > 0.1


def test_a_change_affects_no_earlier_token() -> None:
    tokens = torch.randint(0, 64, (1, 16), generator=torch.Generator().manual_seed(0))
    changed = tokens.clone()
    changed[0, 6] = (changed[0, 6] + 1) % 64
    model = build(SPEC.model_copy(update={"sliding_window": 2, "layers": 1}))
    with torch.no_grad():
        differs = (model.features(tokens) != model.features(changed)).any(-1)[0]
    # A window of two contains a key that the token is filtered into, up to two later, and the one before.
    assert differs.nonzero().flatten().tolist() == [6, 7, 8, 9]


def test_biases_start_at_zero_and_norms_at_one() -> None:
    weights = dict(build(SPEC).layers["0"].attention.filter.named_parameters())
    assert not weights["first_bias.weight"].any() and not weights["second_bias.weight"].any()
    assert bool((weights["norm.weight"] == 1).all()) and weights["second.weight"].std() > 0.2


MODEL = {
    "layers": 2,
    "attention": "localized_filtering",
    "sliding_window": 12,
    "tied_embeddings": False,
}


def leave_out_sums() -> None:
    parallelize.all_reduce = lambda terms, axis: terms


@pytest.mark.slow(target="layouts")
def test_tensor_ranks_learn_what_one_process_does(tmp_path: Path, data: Path) -> None:
    """Other layouts are cells of ``tests.parity``."""
    strong = MODEL | {"initializer_std": 0.2}  # so that convolutions matter
    one = learned(tmp_path, data, strong, FP32)
    # About fifteen matmuls are computed in sequence in each of two layers, sums of at most 256 tokens in float32.
    bound = 30 * 256 * 2.0**-24
    assert learned(tmp_path, data, strong, FP32, tensor=2) == pytest.approx(one, rel=bound)
    apart = learned(tmp_path / "apart", data, strong, FP32, leave_out_sums, tensor=2)
    assert apart != pytest.approx(one, rel=bound), "a sum that is left out must be detected"


@pytest.mark.slow(target="layouts")
def test_stages_in_fp8_learn_what_one_process_does(tmp_path: Path, data: Path) -> None:
    """Bit for bit, except for the order in which squares are summed to a norm."""
    one = learned(tmp_path, data, MODEL, FP8)
    assert learned(tmp_path, data, MODEL, FP8, pipeline=2) == pytest.approx(one, rel=256 * 2.0**-24)


@pytest.mark.slow(target="layouts")
def test_tensor_ranks_in_fp8_learn_what_one_process_does(tmp_path: Path, data: Path) -> None:
    """Equal within two roundings: partial sums are rounded to bfloat16, three times per layer, in each direction."""
    wide = MODEL | {"width": 128}
    one = learned(tmp_path, data, wide, FP8)
    assert learned(tmp_path, data, wide, FP8, tensor=2) == pytest.approx(one, rel=2 * 3 * 2 * 2.0**-9)


def test_yuan_2_has_its_published_number_of_weights() -> None:
    """2.1B: 18 · D² a layer, and 2.09 billion with the embedding."""
    yuan = ModelSpec(layers=24, width=2_048, heads=32, feed_forward=8_192, attention="localized_filtering")
    parameters = count_parameters(yuan, 135_040, 8_192)
    assert parameters.total == pytest.approx(2.09e9, rel=0.005)
    matrices = 24 * 18 * 2_048**2 + 135_040 * 2_048
    assert flops_per_token(yuan, 135_040, 8_192) == 6 * matrices + 12 * 24 * 2_048 * 8_192


def run_spec(**sections: Any) -> RunSpec:
    return RunSpec.model_validate(TINY | sections)


def test_the_plan_says_that_no_class_of_transformers_loads_exports() -> None:
    model = {"layers": 2, "width": 32, "heads": 4}
    assert "as LlamaForCausalLM" in plan(run_spec(model=model)).export_loaded_by
    loaded_by = plan(run_spec(model=model | {"attention": "localized_filtering"})).export_loaded_by
    assert "no class has localized filtering" in loaded_by and "model.py" in loaded_by


def test_localized_filtering_in_parallel_blocks_is_refused() -> None:
    model = {"layers": 2, "width": 32, "heads": 4, "attention": "localized_filtering", "block": "parallel"}
    with pytest.raises(ValidationError, match="localized filtering changes the input of attention"):
        run_spec(model=model)


def test_a_width_that_tensor_ranks_cannot_halve_is_refused() -> None:
    with pytest.raises(ValidationError) as caught:
        run_spec(model={"width": 12, "heads": 4, "head_size": 4, "attention": "localized_filtering"})
    (problem,) = problems(caught.value, RunSpec)
    assert problem.field == "model.width" and "must be even" in problem.message


def test_fp8_matmuls_need_half_of_the_width_in_tiles() -> None:
    model = {"width": 48, "heads": 4, "kv_heads": 4, "head_size": 16, "feed_forward": 64}
    run_spec(model=model, precision=FP8)
    with pytest.raises(ValidationError) as caught:
        run_spec(model=model | {"attention": "localized_filtering"}, precision=FP8)
    (problem,) = problems(caught.value, RunSpec)
    assert problem.field == "model.width" and "the next is 64" in problem.message


@pytest.mark.slow(target="layouts")
def test_an_export_can_be_loaded(tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job_file = write_job(tmp_path, data, model=MODEL, schedule={"steps": 3, "warmup_steps": 1})
    training = train_here(job_file)
    assert main(["export", str(job_file)]) == 0
    reloaded, _ = load_export(tmp_path / "out/export")
    with torch.no_grad():
        tokens_BT = torch.arange(32)[None]
        assert torch.equal(reloaded(tokens_BT), training.engine.model(tokens_BT))
    capsys.readouterr()
    assert main(["sample", str(tmp_path / "out/export"), "--prompt", "the", "--tokens", "3"]) == 0
    assert capsys.readouterr().out.startswith("the")
