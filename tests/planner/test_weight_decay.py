"""The sentence about what decays counts the weights that the model has."""

from typing import Any

import pytest
import torch

from tests.trainer.jobs import TINY
from trainwright.contracts.run_spec import RunSpec
from trainwright.planner.plan import plan
from trainwright_trainer.model.transformer import Transformer

MODELS: list[dict[str, Any]] = [
    {"layers": 3, "positions": "learned", "norm": "layer", "biases": "all", "tied_embeddings": False},
    {"layers": 2, "attention": "localized_filtering", "qk_norm": True},
]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("which", ["matrices", "block_matrices", "all"])
def test_the_plan_counts_the_weights_that_decay(model: dict[str, Any], which: str) -> None:
    spec = RunSpec.model_validate(
        TINY
        | {"model": {"width": 32, "heads": 4} | model, "resources": {"device": "cpu"}}
        | {"optimizer": {"weight_decay": 0.5, "weight_decay_of": which}}
    )
    with torch.device("meta"):
        built = Transformer(spec.model, spec.data.tokenizer.size, spec.batch.sequence_tokens)
    weights = dict(built.named_parameters())
    decayed = [
        weight
        for name, weight in weights.items()
        if which == "all" or (weight.ndim == 2 and (which == "matrices" or name.startswith("layers.")))
    ]
    counts = [sum(weight.numel() for weight in some) for some in (decayed, weights.values())]
    assert f"0.5 is for {counts[0]:,} of {counts[1]:,} weights" in plan(spec).what_decays


def test_no_decay_is_said() -> None:
    spec = RunSpec.model_validate(TINY | {"optimizer": {"weight_decay": 0.0}})
    assert plan(spec).what_decays == "No weight decays."
