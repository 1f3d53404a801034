"""Muon compared with float64 references: its direction, many updates, and its first step in every layout."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.trainer.jobs import losses, resume_from, train_here, write_job
from tests.trainer.optim.whole_updates import (
    LAYOUTS,
    NEWTON_SCHULZ,
    ROUNDING,
    first_step,
    muon_reference,
    wrong_by_muon,
)
from tests.trainer.ranks import on_mesh
from tests.trainer.zero_trainings import LEARNING_RATE, job_writer
from trainwright.contracts.job_spec import output_folder
from trainwright.contracts.optimizer_spec import OptimizerSpec
from trainwright_trainer.optim.divided_matrices import DividedMatrices
from trainwright_trainer.optim.muon import Muon, orthogonalized
from trainwright_trainer.optim.whole_weights import only_here
from trainwright_trainer.process.job_file import read_job

MUON = {"kind": "muon"}


@pytest.mark.parametrize("shape", [(8, 8), (6, 40), (40, 6), (64, 64)])
def test_the_direction_has_the_singular_vectors_and_values_near_one(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    found, wanted = orthogonalized(matrix).double(), muon_reference(matrix)
    assert float((found - wanted).norm() / wanted.norm()) <= 15 * max(shape) * NEWTON_SCHULZ * ROUNDING
    assert float((found - wanted).norm() / wanted.norm()) <= 1e-3, "the bound is far above what is found"
    values = torch.linalg.svdvals(found)
    assert float(values.max()) < 1.3 and float(values.median()) > 0.6


@pytest.mark.parametrize("shape", [(64, 64), (48, 256), (256, 48)])
def test_the_direction_in_bfloat16_is_almost_the_same(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(1)).bfloat16()
    found, wanted = orthogonalized(matrix).double(), muon_reference(matrix.float())
    # 15 matmuls, each rounded by up to 2⁻⁹; rounding errors of small singular values grow.
    assert float((found - wanted).norm() / wanted.norm()) <= 15 * 2.0**-9
    values = torch.linalg.svdvals(found)
    assert float(values.max()) < 1.3 and float(values.median()) > 0.6


def test_many_updates_follow_the_formulas_in_float64() -> None:
    generator = torch.Generator().manual_seed(0)
    names = {"layers.0.a.weight": (8, 24), "layers.1.b.weight": (24, 8)}
    weights = {name: nn.Parameter(torch.randn(shape, generator=generator)) for name, shape in names.items()}
    wanted = {name: weight.detach().double() for name, weight in weights.items()}
    momenta = {name: torch.zeros_like(item) for name, item in wanted.items()}
    spec = OptimizerSpec(kind="muon", learning_rate=LEARNING_RATE, momentum=0.9)
    optimizer = Muon(weights, spec, only_here(weights, torch.device("cpu")))
    for _ in range(10):
        for name, weight in weights.items():
            weight.grad = torch.randn(weight.shape, generator=generator)
            gradient = weight.grad.double()
            momenta[name] = 0.9 * momenta[name] + 0.1 * gradient
            step = muon_reference(0.9 * momenta[name] + 0.1 * gradient)
            scale = 0.2 * max(weight.shape) ** 0.5
            wanted[name] = wanted[name] - LEARNING_RATE * (0.1 * wanted[name] + scale * step)
        optimizer.step()
    for name, weight in weights.items():
        # Ten steps of norm 0.2 √24 · √8, each with the error of the direction, and ten roundings of the weight.
        moved = 10 * LEARNING_RATE * 0.2 * 24**0.5 * 8**0.5
        allowed = moved * 15 * 24 * NEWTON_SCHULZ * ROUNDING + 20 * ROUNDING * wanted[name].norm()
        assert float((weight.detach() - wanted[name]).norm()) <= float(allowed)


@pytest.fixture(scope="module")
def job(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    return job_writer(data, tmp_path_factory)


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_moves_each_weight_as_the_formulas_say(layout: str, job: Callable[..., Path]) -> None:
    ranks, parallelism = LAYOUTS[layout]
    job_file = job(ranks, parallelism=parallelism, optimizer=MUON)
    spec = read_job(job_file).spec
    assert not wrong_by_muon(on_mesh(spec.degrees, first_step, job_file), spec.optimizer)


def _orthogonalize_shards() -> None:
    """Inject a fault: each rank orthogonalizes its own shard."""

    def own(
        self: DividedMatrices,
        parts: dict[str, Tensor],
        compute: Callable[[Tensor], Tensor],
        dtype: torch.dtype,
    ) -> None:
        for part in parts.values():
            part.copy_(compute(part))

    pytest.MonkeyPatch().setattr(DividedMatrices, "replace", own)  # the process ends with the training


SLICED = ("ZeRO 3, tensor 2", "tensor 2", "ZeRO 3 over 4")


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("layout", SLICED)
def test_a_direction_of_a_shard_is_detected(layout: str, job: Callable[..., Path]) -> None:
    ranks, parallelism = LAYOUTS[layout]
    job_file = job(ranks, parallelism=parallelism, optimizer=MUON)
    spec = read_job(job_file).spec
    wrong = wrong_by_muon(on_mesh(spec.degrees, first_step, job_file, _orthogonalize_shards), spec.optimizer)
    assert {"layers.0.attention.query.weight", "layers.3.feed_forward.down.weight"} <= set(wrong)
    assert "embedding.weight" not in wrong


@pytest.mark.slow(target="layouts")
def test_a_resumed_run_repeats_bit_for_bit(tmp_path: Path, data: Path) -> None:
    spec: dict[str, Any] = {
        "optimizer": MUON,
        "schedule": {"steps": 6, "warmup_steps": 2},
        "checkpoint": {"every_steps": 3},
    }
    whole = write_job(tmp_path / "whole", data, **spec)
    train_here(whole)
    saved = output_folder(whole) / "checkpoints" / "step-3"
    resumed = write_job(tmp_path / "resumed", data, job=resume_from(saved, tmp_path / "resumed"), **spec)
    train_here(resumed)
    assert losses(resumed) == losses(whole)[3:]
