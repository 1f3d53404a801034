"""The sentences about what decays and about learning rates count the weights that the model has."""

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from tests.trainer.jobs import TINY
from trainwright.contracts.base import problems
from trainwright.contracts.run_spec import RunSpec
from trainwright.planner.plan import plan
from trainwright_trainer.model.transformer import Transformer

MODELS: list[dict[str, Any]] = [
    {"layers": 3, "positions": "learned", "norm": "layer", "biases": "all", "tied_embeddings": False},
    {"layers": 2, "attention": "localized_filtering", "qk_norm": True},
]


def spec_of(model: dict[str, Any], optimizer: dict[str, Any]) -> RunSpec:
    sections = {"model": {"width": 32, "heads": 4} | model, "resources": {"device": "cpu"}}
    return RunSpec.model_validate(TINY | sections | {"optimizer": optimizer})


def weights_of(spec: RunSpec) -> dict[str, nn.Parameter]:
    with torch.device("meta"):
        built = Transformer(spec.model, spec.data.tokenizer.size, spec.batch.sequence_tokens)
    return dict(built.named_parameters())


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("which", ["matrices", "block_matrices", "all"])
def test_the_plan_counts_the_weights_that_decay(model: dict[str, Any], which: str) -> None:
    spec = spec_of(model, {"weight_decay": 0.5, "weight_decay_of": which})
    weights = weights_of(spec)
    decayed = [
        weight
        for name, weight in weights.items()
        if which == "all" or (weight.ndim == 2 and (which == "matrices" or name.startswith("layers.")))
    ]
    counts = [sum(weight.numel() for weight in some) for some in (decayed, weights.values())]
    assert f"0.5 is for {counts[0]:,} of {counts[1]:,} weights" in plan(spec).what_decays


@pytest.mark.parametrize("model", MODELS)
def test_the_plan_counts_the_weights_of_each_learning_rate(model: dict[str, Any]) -> None:
    factors = {"embedding": 3.0, "vectors": 0.5}
    spec = spec_of(model, {"learning_rate": 0.01, "learning_rate_factors": factors})
    weights = weights_of(spec)
    counts = {"embedding": 0, "vectors": 0, "block_matrices": 0, "head": 0}
    for name, weight in weights.items():
        matrix = "embedding" if "embedding" in name else "head" if name == "head.weight" else "block_matrices"
        counts["vectors" if weight.ndim == 1 else matrix] += weight.numel()
    sentence = plan(spec).learning_rates
    assert f"0.03 for {counts['embedding']:,} weights of embeddings" in sentence
    assert f"0.005 for {counts['vectors']:,} weights of norms and biases" in sentence
    assert f"0.01 for {counts['block_matrices']:,} weights of matrices in blocks" in sentence
    assert (f"0.01 for {counts['head']:,} weights of the head" in sentence) is ("head.weight" in weights)


def test_one_learning_rate_is_not_mentioned() -> None:
    assert plan(RunSpec.model_validate(TINY)).learning_rates == ""


def test_a_tied_head_has_no_factor_of_its_own() -> None:
    given = TINY | {"optimizer": {"learning_rate_factors": {"head": 2.0}}, "model": {"tied_embeddings": True}}
    with pytest.raises(ValidationError) as refused:
        RunSpec.model_validate(given)
    (problem,) = problems(refused.value, RunSpec)
    assert (problem.field, problem.value) == ("optimizer.learning_rate_factors.head", 2.0)
    assert "use embedding" in problem.message


def test_no_decay_is_said() -> None:
    spec = RunSpec.model_validate(TINY | {"optimizer": {"weight_decay": 0.0}})
    assert plan(spec).what_decays == "No weight decays."
