"""Every optimizer is what it declares for trainer and planner."""

from __future__ import annotations

from typing import get_args

import pytest
import torch
from torch import nn

from trainwright.contracts.optimizer_spec import UPDATE_RULES, OptimizerKind, OptimizerSpec
from trainwright_trainer.optim.registry import OPTIMIZERS, TORCH_OPTIMIZERS, build_optimizer
from trainwright_trainer.optim.whole_weights import only_here

WEIGHTS = {"embedding.weight": (6, 4), "layers.0.feed_forward.up.weight": (8, 4), "norm.weight": (4,)}


def test_every_kind_has_a_rule_and_a_step() -> None:
    assert set(get_args(OptimizerKind)) == UPDATE_RULES.keys() == OPTIMIZERS.keys()


@pytest.mark.parametrize("kind", UPDATE_RULES)
def test_a_step_moves_every_weight_and_each_declared_state(kind: str) -> None:
    generator = torch.Generator().manual_seed(0)
    weights = {name: nn.Parameter(torch.randn(shape, generator=generator)) for name, shape in WEIGHTS.items()}
    spec = OptimizerSpec.model_validate({"kind": kind})
    optimizer = build_optimizer(weights, spec, only_here(weights, torch.device("cpu")))
    before = {name: weight.detach().clone() for name, weight in weights.items()}
    for weight in weights.values():
        weight.grad = torch.randn(weight.shape, generator=generator)
    optimizer.step()
    for name, weight in weights.items():
        assert not torch.equal(weight, before[name])
        states = optimizer.state[weight]
        assert states.keys() == {"step", *spec.states_of(name, weight.ndim)}
        assert all(bool(state.any()) for state in states.values()), f"a state of {name} is not used"


def test_the_optimizers_that_deepspeed_can_use_are_classes_of_torch() -> None:
    assert TORCH_OPTIMIZERS.keys() == {kind for kind, rule in UPDATE_RULES.items() if rule.on_deepspeed}
