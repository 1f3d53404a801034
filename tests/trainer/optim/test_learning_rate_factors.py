"""Kinds of weights have the learning rates of their factors, with every updater and in every layout."""

from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from tests.selection import partly_slow
from tests.trainer.optim.whole_updates import LAYOUTS, ROUNDING, first_step, states_of
from tests.trainer.ranks import on_mesh
from tests.trainer.zero_trainings import job_writer
from trainwright.contracts.optimizer_spec import LearningRateFactors, OptimizerSpec
from trainwright_trainer.process.job_file import read_job

FACTORS = {"embedding": 3.0, "head": 0.125, "block_matrices": 0.5, "vectors": 7.0}
MODEL: dict[str, Any] = {"tied_embeddings": False, "positions": "learned", "norm": "layer", "biases": "all"}
O1 = {"precision": {"kind": "fp8", "fp8": {"level": "O1", "scaling": "tensor"}}}

SECTIONS: dict[str, tuple[int, dict[str, Any]]] = {
    name: (ranks, {"parallelism": parallelism}) for name, (ranks, parallelism) in LAYOUTS.items()
} | {
    "LAMB": (1, {"optimizer": {"kind": "lamb"}}),
    "LAMB, ZeRO 3, tensor 2": (
        4,
        {"optimizer": {"kind": "lamb"}, "parallelism": {"zero_stage": 3, "tensor": 2}},
    ),
    "Muon": (1, {"optimizer": {"kind": "muon"}}),
    "Muon, ZeRO 1, pipeline 2": (
        4,
        {"optimizer": {"kind": "muon"}, "parallelism": {"zero_stage": 1, "pipeline": 2}},
    ),
    "FP8": (1, O1),
    "FP8, data 2, pipeline 2": (4, O1 | {"parallelism": {"pipeline": 2}}),
    "deepspeed": (1, {"parallelism": {"engine": "deepspeed"}}),
    "deepspeed, ZeRO 1 over 2": (2, {"parallelism": {"engine": "deepspeed", "zero_stage": 1}}),
    "deepspeed, ZeRO 3 over 2": (2, {"parallelism": {"engine": "deepspeed", "zero_stage": 3}}),
}


def factor_of(name: str, dims: int) -> float:
    """The rule, written again."""
    if dims == 1:
        return FACTORS["vectors"]
    if name.startswith("layers."):
        return FACTORS["block_matrices"]
    return FACTORS[name.removesuffix(".weight").removeprefix("position_")]


@pytest.mark.parametrize("layout", partly_slow(SECTIONS, ["one process", "LAMB", "Muon", "FP8"]))
def test_the_first_step_moves_each_weight_by_its_factor(
    layout: str, data: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    ranks, sections = SECTIONS[layout]
    changes: dict[bool, dict[str, Tensor]] = {}
    for with_factors in (False, True):
        factors = {"learning_rate_factors": FACTORS} if with_factors else {}
        optimizer = sections.get("optimizer", {}) | factors
        given = sections | {"model": MODEL | {"layers": 4}, "optimizer": optimizer}
        job_file = job_writer(data, tmp_path_factory)(ranks, **given)
        before, after = states_of(on_mesh(read_job(job_file).spec.degrees, first_step, job_file))
        start = {name: weight for name, weight in before.items() if name.startswith("model.")}
        changes[with_factors] = {name: after[name] - weight for name, weight in start.items()}
    names = {name.removeprefix("model.") for name in start}
    assert {"embedding.weight", "position_embedding.weight", "head.weight", "norm.weight"} <= names
    for name, weight in start.items():
        factor = factor_of(name.removeprefix("model."), weight.ndim)
        # Each update rounds the weight twice, when it decays and when it moves, and itself about eight times.
        allowed = ROUNDING * (1 + factor) * (2 * weight.abs() + 2**3 * changes[True][name].abs()) + 1e-30
        off = (changes[True][name] - factor * changes[False][name]).abs()
        assert bool((off <= allowed).all()), f"{name} is not moved by {factor} times its change"


def test_a_weight_has_the_factor_of_its_kind() -> None:
    spec = OptimizerSpec(learning_rate_factors=LearningRateFactors.model_validate(FACTORS))
    for name, dims in (
        ("embedding.weight", 2),
        ("position_embedding.weight", 2),
        ("head.weight", 2),
        ("layers.3.attention.query.weight", 2),
        ("layers.3.attention_norm.weight", 1),
        ("norm.weight", 1),
    ):
        assert spec.learning_rate_factor(name, dims) == factor_of(name, dims)
        assert OptimizerSpec().learning_rate_factor(name, dims) == 1.0
