"""Weights cast once per step: the bits of a training are those of casts in each micro batch."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.jobs import build_here, write_job
from trainwright_trainer.fp8.compute import linear
from trainwright_trainer.fp8.compute.cast_transpose import (
    cast_and_transpose,
    cast_and_transpose_into,
    in_torch,
)
from trainwright_trainer.fp8.compute.formats import E4M3, E5M2
from trainwright_trainer.fp8.compute.weight import StoredMatrix, Weight
from trainwright_trainer.fp8.state import updater, weight_operands
from trainwright_trainer.fp8.state.updater import FP8Updater
from trainwright_trainer.fp8.state.weight_operands import WeightOperands
from trainwright_trainer.observe.step_timer import StepTimer
from trainwright_trainer.training.build import Training

CPU = torch.device("cpu")


MATRICES = 14
"""Two layers with seven matrices in FP8."""


def build_training(folder: Path, data: Path, level: str, global_sequences: int = 4) -> Training:
    """A training whose micro batches have two sequences."""
    job_file = write_job(
        folder,
        data,
        1,
        model={"layers": 2, "width": 64, "heads": 4, "kv_heads": 2},
        batch={"sequence_tokens": 32, "micro_sequences": 2, "global_sequences": global_sequences},
        precision={"kind": "fp8", "fp8": {"level": level}},
    )
    return build_here(job_file)


def state_after_steps(folder: Path, data: Path, level: str, global_sequences: int = 4) -> torch.Tensor:
    """Codes of the masters after three steps."""
    training = build_training(folder, data, level, global_sequences)
    for step in (1, 2, 3):
        training.engine.step(training.loader.micro_batches(step), 1e-2, StepTimer(CPU))
    found = training.engine.updater
    assert isinstance(found, FP8Updater)
    kept = [one.operands for one in training.engine.model.modules() if isinstance(one, Weight)]
    several = global_sequences > 2 and updater.keeps_weight_operands(training.spec)
    assert sum(one is not None for one in kept) == (MATRICES if several and level != "O3" else 0)
    return found.optimizer.master.codes.clone()


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("level", ["O1", "O2"])
def test_reused_operands_change_no_bit(
    tmp_path: Path, data: Path, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = state_after_steps(tmp_path / "kept", data, level)
    with monkeypatch.context() as stale:  # injected fault: operands of the initial weights
        refreshed: list[WeightOperands] = []
        real = WeightOperands.refresh

        def refresh_once(operands: WeightOperands) -> None:
            if operands not in refreshed:
                refreshed.append(operands)
                real(operands)

        stale.setattr(WeightOperands, "refresh", refresh_once)
        assert not torch.equal(state_after_steps(tmp_path / "stale", data, level), kept)
    monkeypatch.setattr(updater, "keeps_weight_operands", lambda spec: False)
    assert torch.equal(state_after_steps(tmp_path / "cast", data, level), kept)


def cast_in_every_micro_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    real = FP8Updater.end_micro_batch

    def cast_again(made: FP8Updater) -> None:
        real(made)
        made.operands.refresh()

    monkeypatch.setattr(FP8Updater, "end_micro_batch", cast_again)


def cast_in_every_matmul(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Weight, "stored", lambda weight: StoredMatrix(weight.codes, weight.scale, weight.cast_scale, None)
    )


@pytest.mark.parametrize(
    ("fault", "casts"),
    [
        (None, {"for the step": MATRICES}),
        (cast_in_every_micro_batch, {"for the step": 2 * MATRICES}),
        # Forward and backward, in two micro batches.
        (cast_in_every_matmul, {"for the step": MATRICES, "for a matmul": 4 * MATRICES}),
    ],
)
def test_weights_are_cast_once_per_step(
    tmp_path: Path,
    data: Path,
    fault: Callable[[pytest.MonkeyPatch], None] | None,
    casts: dict[str, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: Counter[str] = Counter()

    def counted(function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            made[name] += 1
            return function(*arguments)

        return call

    training = build_training(tmp_path, data, "O2")
    if fault is not None:
        fault(monkeypatch)
    into = counted(weight_operands.cast_and_transpose_into, "for the step")
    monkeypatch.setattr(weight_operands, "cast_and_transpose_into", into)
    monkeypatch.setattr(linear, "cast_", counted(linear.cast_, "for a matmul"))
    training.engine.step(training.loader.micro_batches(1), 1e-2, StepTimer(CPU))
    assert made == casts


def test_runs_of_one_micro_batch_and_o3_reuse_no_operands(tmp_path: Path, data: Path) -> None:
    state_after_steps(tmp_path / "one", data, "O2", global_sequences=2)
    state_after_steps(tmp_path / "O3", data, "O3")


@pytest.mark.parametrize("dtype", [E4M3, E5M2])
def test_a_matrix_is_cast_both_ways(dtype: torch.dtype) -> None:
    numbers = torch.randn(48, 80).mul(300).bfloat16()
    numbers[0, :2] = torch.tensor([torch.nan, torch.inf])
    codes, transposed = cast_and_transpose(numbers, torch.tensor(0.5), dtype)
    largest = torch.finfo(dtype).max
    exact = (numbers.float() / 2).clamp(-largest, largest).to(dtype).float().nan_to_num(1e9)
    assert torch.equal(codes.float().nan_to_num(1e9), exact)
    assert transposed.is_contiguous() and torch.equal(transposed.float().nan_to_num(1e9), exact.t())
    into = torch.empty(48, 80, dtype=dtype), torch.empty(80, 48, dtype=dtype)
    cast_and_transpose_into(numbers, torch.tensor(0.5), *into)
    for found, plain in zip(into, in_torch(numbers, torch.tensor(0.5), dtype), strict=True):
        assert torch.equal(found.view(torch.uint8), plain.view(torch.uint8))
