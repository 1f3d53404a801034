"""Sliding windows: attention follows the formula in every layout, and the planner and exports know them."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from tests.trainer.jobs import TINY, build_here, events, losses, train_here, write_job
from tests.trainer.model.option_trainings import FP8, FP32, LENGTH, build, learned
from trainwright.contracts.base import problems
from trainwright.contracts.block_parts import mean_keys
from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.training_spec import MemorySpec, RecomputeKind
from trainwright.planner.flops import flops_per_token, recomputed_flops_per_token
from trainwright.planner.plan import stage_times
from trainwright_trainer.checkpoint.snapshot import config_digest
from trainwright_trainer.model import flex_attention, masks
from trainwright_trainer.model.flex_attention import FlexMasks
from trainwright_trainer.model.masks import DenseMasks, Visible

WINDOW = 5
SPEC = ModelSpec(layers=3, width=32, heads=4, kv_heads=2, sliding_window=WINDOW, sliding_window_pattern=3)


def by_formula(q_HTK: Tensor, k_GTK: Tensor, v_GTK: Tensor, window: int | None) -> Tensor:
    """Attention of one sequence, position by position: softmax of the scores of a token's window."""
    heads, length, size = q_HTK.shape
    mixed_HTK = torch.empty_like(q_HTK)
    for head in range(heads):
        group = head * len(k_GTK) // heads
        for t in range(length):
            first = 0 if window is None else max(0, t - window + 1)
            scores = k_GTK[group, first : t + 1] @ q_HTK[head, t] / math.sqrt(size)
            mixed_HTK[head, t] = scores.softmax(0) @ v_GTK[group, first : t + 1]
    return mixed_HTK


def apart_from_formula(window: int | None, attend: Callable[..., Tensor]) -> float:
    generator = torch.Generator().manual_seed(0)
    q_HTK, k_GTK, v_GTK = (torch.randn(count, LENGTH, 8, generator=generator) for count in (4, 2, 2))
    got = attend(q_HTK[None], k_GTK[None], v_GTK[None])[0]
    return float((got - by_formula(q_HTK, k_GTK, v_GTK, window)).abs().max())


def with_masks(kind: type[DenseMasks] | type[FlexMasks], window: int) -> Callable[..., Tensor]:
    made = kind()
    mask = made.build(LENGTH, Visible(window), torch.float32, torch.device("cpu"))
    return lambda q, k, v: made.attend(q, k, v, mask)


@pytest.mark.parametrize("window", [1, WINDOW, LENGTH - 1])
def test_a_token_attends_to_its_window(window: int) -> None:
    # Sums of at most 16 terms of order 1 in float32.
    assert apart_from_formula(window, with_masks(DenseMasks, window)) <= 16 * 2.0**-22


@pytest.mark.parametrize("shift", [-1, 1])
def test_a_window_with_one_token_more_or_less_is_detected(
    shift: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = masks.sees
    monkeypatch.setattr(masks, "sees", lambda query, key, window, *starts: honest(query, key, window + shift))
    assert apart_from_formula(WINDOW, with_masks(DenseMasks, WINDOW)) > 1e-2


def test_flex_attention_computes_the_same() -> None:
    """On a CPU it has a forward pass only, which computes all scores; a GPU's kernel reads the same function."""
    with torch.no_grad():
        assert apart_from_formula(WINDOW, with_masks(FlexMasks, WINDOW)) <= 16 * 2.0**-22


@pytest.mark.parametrize("kind", [DenseMasks, FlexMasks])
def test_masks_with_and_without_a_window_are_built_once(
    kind: type[DenseMasks] | type[FlexMasks], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a soft cap, layers without a window need a mask too."""
    module, name = (masks, "_scores") if kind is DenseMasks else (flex_attention, "_block_mask")
    build_mask, built = getattr(module, name), []

    def counted(*given: Any) -> Any:
        built.append(given)
        return build_mask(*given)

    monkeypatch.setattr(module, name, counted)
    made, device = kind(), torch.device("cpu")
    first = [made.build(LENGTH, Visible(window), torch.float32, device) for window in (WINDOW, None)]
    again = [made.build(LENGTH, Visible(window), torch.float32, device) for window in (WINDOW, None)]
    assert len(built) == 2 and all(one is other for one, other in zip(first, again, strict=True))
    for length in range(1, 40):
        made.build(length, Visible(WINDOW), torch.float32, device)
    made.build(LENGTH, Visible(None), torch.float32, device)
    assert len(built) == 2 + 39 + 1, "few masks are kept"


def test_layers_follow_the_pattern() -> None:
    assert [SPEC.window_of_layer(layer) for layer in range(7)] == [5, 5, None, 5, 5, None, 5]
    model = build(SPEC)
    assert [block.attention.window is not None for block in model.layers.values()] == [True, True, False]


def test_a_change_affects_the_tokens_whose_windows_contain_it() -> None:
    """After two layers with windows of 5: the token itself and 2 · 4 more. A third, full layer reaches all later
    ones."""
    tokens = torch.randint(0, 64, (1, LENGTH), generator=torch.Generator().manual_seed(0))
    changed = tokens.clone()
    changed[0, 3] = (changed[0, 3] + 1) % 64
    for layers, reached in ((2, range(3, 3 + 2 * 4 + 1)), (3, range(3, LENGTH))):
        pattern = None if layers == 2 else 3
        model = build(SPEC.model_copy(update={"layers": layers, "sliding_window_pattern": pattern}))
        with torch.no_grad():
            differs = (model.features(tokens) != model.features(changed)).any(-1)[0]
        assert differs.nonzero().flatten().tolist() == list(reached)


def test_a_window_as_long_as_the_sequences_changes_no_bit() -> None:
    tokens = torch.randint(0, 64, (2, LENGTH), generator=torch.Generator().manual_seed(0))
    wide = build(SPEC.model_copy(update={"sliding_window": LENGTH}))
    plain = build(SPEC.model_copy(update={"sliding_window": None, "sliding_window_pattern": None}))
    assert torch.equal(wide(tokens), plain(tokens))


MODEL = {"layers": 3, "sliding_window": 6, "sliding_window_pattern": 3, "tied_embeddings": False}


@pytest.mark.slow(target="layouts")
def test_tensor_ranks_learn_what_one_process_does(tmp_path: Path, data: Path) -> None:
    """Other layouts are cells of ``tests.parity``."""
    one = learned(tmp_path, data, MODEL, FP32)
    # About ten matmuls are computed in sequence in each of three layers, sums of at most 256 tokens in float32.
    bound = 30 * 256 * 2.0**-24
    assert learned(tmp_path, data, MODEL, FP32, tensor=2) == pytest.approx(one, rel=bound)
    plain = MODEL | {"sliding_window": None, "sliding_window_pattern": None}
    assert learned(tmp_path / "plain", data, plain, FP32) != pytest.approx(one, rel=bound)


@pytest.mark.slow(target="layouts")
def test_stages_in_fp8_learn_what_one_process_does(tmp_path: Path, data: Path) -> None:
    """Bit for bit, except for the order in which squares are summed to a norm."""
    one = learned(tmp_path, data, MODEL, FP8)
    assert learned(tmp_path, data, MODEL, FP8, pipeline=2) == pytest.approx(one, rel=256 * 2.0**-24)


def test_the_planner_counts_the_mean_number_of_keys() -> None:
    for window in (1, 5, 15):
        keys = [min(t + 1, window) for t in range(LENGTH)]
        assert mean_keys(window, LENGTH) == sum(keys) / LENGTH
    assert mean_keys(None, LENGTH) == mean_keys(LENGTH, LENGTH) == LENGTH
    plain = SPEC.model_copy(update={"sliding_window": None, "sliding_window_pattern": None})
    spared = 2 * 4 * 32 * (LENGTH - mean_keys(WINDOW, LENGTH))  # in two of three layers, forward
    assert flops_per_token(plain, 64, LENGTH) - flops_per_token(SPEC, 64, LENGTH) == 3 * spared
    memory = MemorySpec(recompute=RecomputeKind.FULL, recompute_layers="0-1")
    again = [recomputed_flops_per_token(model, memory, LENGTH) for model in (plain, SPEC)]
    assert again[0] - again[1] == spared


def run_spec(**model: Any) -> RunSpec:
    return RunSpec.model_validate(TINY | {"model": {"layers": 4, "width": 32, "heads": 4} | model})


def test_a_stage_of_layers_with_windows_is_faster() -> None:
    first, last = stage_times(run_spec(sliding_window=4, sliding_window_pattern=4), (3, 1))
    assert first.forward / 3 < last.forward


@pytest.mark.parametrize(
    ("model", "field", "words"),
    [
        ({"sliding_window_pattern": 2}, "sliding_window_pattern", "sliding_window is empty"),
        ({"sliding_window": 8, "sliding_window_pattern": 5}, "sliding_window_pattern", "more than layers 4"),
        ({"sliding_window": 0}, "sliding_window", "too small"),
    ],
)
def test_windows_without_effect_are_refused(model: dict[str, int], field: str, words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        run_spec(**model)
    (problem,) = problems(caught.value, RunSpec)
    assert problem.field == f"model.{field}" and words in problem.message


def test_the_digest_of_models_without_windows_is_unchanged() -> None:
    assert config_digest(RunSpec.model_validate(TINY)) == DIGEST_OF_TINY
    assert config_digest(run_spec()) != config_digest(run_spec(sliding_window=8))


DIGEST_OF_TINY = "05e79d4bc8c5b9ca6c1c0046286ed710b8ec021b375ebab393417ab48cd0e08b"
"""As computed before windows were introduced."""


def test_a_gpu_run_reports_what_computes_windows(tmp_path: Path, data: Path, cuda: str) -> None:
    model = MODEL | {"width": 64}
    job_file = write_job(
        tmp_path, data, job={"device": "cuda"}, model=model, precision={"kind": "bf16", "compile": "off"}
    )
    training = build_here(job_file, cuda)
    (note,) = (one["message"] for one in events(job_file, "note") if "Attention" in one["message"])
    assert note.startswith("Attention is computed by FlexAttention in layers with a window, ")
    assert isinstance(training.engine.model.masks, FlexMasks)


@pytest.mark.parametrize("cuda", [pytest.param("gpu", marks=pytest.mark.gpu)], indirect=True)
@pytest.mark.parametrize("compiled", ["on", "off"])
@pytest.mark.parametrize("kind", ["fp32", "bf16"])
def test_a_run_on_a_gpu_learns_what_the_cpu_learns(
    tmp_path: Path, data: Path, kind: str, compiled: str, cuda: str
) -> None:
    """The stand-in has no FlexAttention. With heads of 16 features, the fewest that FlexAttention takes."""
    model = MODEL | {"width": 64}
    on_gpu, on_cpu = (
        write_job(
            tmp_path / device,
            data,
            job={"device": device},
            model=model,
            precision={"kind": kind, "compile": compiled if device == "cuda" else "off"},
        )
        for device in ("cuda", "cpu")
    )
    train_here(on_gpu, cuda)
    train_here(on_cpu)
    assert losses(on_gpu) == pytest.approx(losses(on_cpu), abs=0.05 if kind == "bf16" else 1e-3)
