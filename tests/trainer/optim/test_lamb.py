"""LAMB compared with float64 references: over many updates, and its first step in every layout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.trainer.jobs import losses, resume_from, train_here, write_job
from tests.trainer.optim.whole_updates import LAYOUTS, first_step, lamb_reference, wrong_by_lamb
from tests.trainer.ranks import on_mesh
from tests.trainer.zero_trainings import LEARNING_RATE, job_writer
from trainwright.contracts.job_spec import output_folder
from trainwright.contracts.optimizer_spec import OptimizerSpec
from trainwright_trainer.optim.lamb import Lamb
from trainwright_trainer.optim.optimizer import set_learning_rate
from trainwright_trainer.optim.whole_weights import WholeWeights, only_here
from trainwright_trainer.process.job_file import read_job

UPDATES = 20


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_many_updates_follow_the_formulas_in_float64(weight_decay: float) -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = {"wide": (8, 40), "tall": (30, 6), "vector": (16,), "zero": (4, 4)}
    weights = {name: nn.Parameter(torch.randn(shape, generator=generator)) for name, shape in shapes.items()}
    weights["zero"].data.zero_()
    wanted = {name: weight.detach().double() for name, weight in weights.items()}
    moments = {name: (torch.zeros_like(item), torch.zeros_like(item)) for name, item in wanted.items()}
    spec = OptimizerSpec(kind="lamb", learning_rate=LEARNING_RATE, weight_decay=weight_decay)
    optimizer = Lamb(weights, spec, only_here(weights, torch.device("cpu")))
    set_learning_rate(optimizer, LEARNING_RATE)
    for update in range(1, UPDATES + 1):
        for name, weight in weights.items():
            gradient = torch.randn(weight.shape, generator=generator) * (name != "zero")
            weight.grad = gradient.clone()
            wanted[name] += _reference(wanted[name], moments[name], gradient.double(), update, spec)
        optimizer.step()
    for name, weight in weights.items():
        # Each update rounds the weight once, and itself 40 times at most.
        allowed = UPDATES * 2.0**-24 * (wanted[name].norm() * (1 + 40 * LEARNING_RATE))
        assert float((weight.detach() - wanted[name]).norm()) <= allowed, name
    assert torch.equal(weights["zero"], torch.zeros(4, 4)), (
        "a matrix of zeros without gradients must not change"
    )
    assert optimizer.metrics()["trust_ratio/min"] > 0


def _reference(
    weight: Tensor, moments: tuple[Tensor, Tensor], gradient: Tensor, update: int, spec: OptimizerSpec
) -> Tensor:
    first, second = moments
    first.mul_(spec.beta1).add_((1 - spec.beta1) * gradient)
    second.mul_(spec.beta2).add_((1 - spec.beta2) * gradient.square())
    if not weight.any():
        return torch.zeros_like(weight)
    return lamb_reference(weight, first, second, update, spec)[0]


@pytest.fixture(scope="module")
def job(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    return job_writer(data, tmp_path_factory)


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_moves_each_weight_as_the_formulas_say(layout: str, job: Callable[..., Path]) -> None:
    ranks, parallelism = LAYOUTS[layout]
    job_file = job(ranks, parallelism=parallelism, optimizer={"kind": "lamb"})
    spec = read_job(job_file).spec
    results = on_mesh(spec.degrees, first_step, job_file)
    assert not wrong_by_lamb(results, spec.optimizer)


def _norms_of_shards() -> None:
    """Inject a fault: each rank uses the norms of its own shard instead of those of the entire weight."""

    def own(self: WholeWeights, names: Sequence[str], values_MK: Tensor) -> Tensor:
        sums = torch.zeros(len(self.order), values_MK.shape[1], dtype=torch.float64)
        for name, row in zip(names, values_MK, strict=True):
            sums[self.order[name]] = row
        return sums

    pytest.MonkeyPatch().setattr(WholeWeights, "sum", own)  # the process ends with the training


SLICED = ("ZeRO 3, tensor 2", "tensor 2", "ZeRO 3 over 4")


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("layout", SLICED)
def test_a_trust_ratio_of_a_shard_is_detected(layout: str, job: Callable[..., Path]) -> None:
    ranks, parallelism = LAYOUTS[layout]
    job_file = job(ranks, parallelism=parallelism, optimizer={"kind": "lamb"})
    spec = read_job(job_file).spec
    results = on_mesh(spec.degrees, first_step, job_file, _norms_of_shards)
    wrong = wrong_by_lamb(results, spec.optimizer)
    assert {"embedding.weight", "layers.0.feed_forward.down.weight", "metrics"} <= set(wrong)


@pytest.mark.slow(target="layouts")
def test_a_resumed_run_repeats_bit_for_bit(tmp_path: Path, data: Path) -> None:
    spec: dict[str, Any] = {
        "optimizer": {"kind": "lamb"},
        "schedule": {"steps": 6, "warmup_steps": 2},
        "checkpoint": {"every_steps": 3},
    }
    whole = write_job(tmp_path / "whole", data, **spec)
    train_here(whole)
    saved = output_folder(whole) / "checkpoints" / "step-3"
    resumed = write_job(tmp_path / "resumed", data, job=resume_from(saved, tmp_path / "resumed"), **spec)
    train_here(resumed)
    assert losses(resumed) == losses(whole)[3:]
