"""What the optimizers of float32 weights share.

A new optimizer touches three files:

    contracts.training_spec     its name in ``OptimizerSpec.kind``, its settings if it has any, and what it declares in
                                ``UPDATE_RULES``
    here                        a subclass of ``Optimizer``, in a file of its own
    optim.registry              a line

The planner's memory, checkpoints, ZeRO's shards, and refusals of what it does not support follow from what it declares. An
optimizer updates each element independently, so with ZeRO any rank may update any rows of a weight.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer as TorchOptimizer

from trainwright.contracts.training_spec import OptimizerSpec


class Optimizer(ABC):
    """Weights and their states, under the names that torch's ``Optimizer`` uses.

    It is not derived from torch's class, whose construction imports the compiler, which takes 1.5 seconds.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], spec: OptimizerSpec) -> None:
        self.param_groups = weight_groups(parameters, spec)
        self.state: dict[nn.Parameter, dict[str, Tensor]] = {}
        self._spec = spec
        set_learning_rate(self, spec.learning_rate)
        allocate_state(self, spec)

    @torch.no_grad()
    def step(self) -> None:
        """Update every weight that has a gradient."""
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            if weights:
                self.update(weights, group["lr"], group["weight_decay"])

    @abstractmethod
    def update(self, weights: list[nn.Parameter], learning_rate: float, weight_decay: float) -> None:
        """Update ``weights``, which have gradients, and their states, in place."""


def weight_groups(parameters: Sequence[nn.Parameter], spec: OptimizerSpec) -> list[dict[str, Any]]:
    """Matrices get weight decay, norms and other vectors do not."""
    return [
        {"params": [weight for weight in parameters if weight.ndim >= 2], "weight_decay": spec.weight_decay},
        {"params": [weight for weight in parameters if weight.ndim < 2], "weight_decay": 0.0},
    ]


def allocate_state(optimizer: Optimizer | TorchOptimizer, spec: OptimizerSpec) -> None:
    """Allocate the state that the first step would: so it has the same tensors after any number of steps.

    The number of updates, ``step``, is a tensor on the weight's device, as torch's fused optimizers have it.
    """
    for group in optimizer.param_groups:
        for weight in group["params"]:
            updates = torch.zeros((), dtype=torch.float32, device=weight.device)
            optimizer.state[weight] = {"step": updates} | {
                state: torch.zeros_like(weight) for state in spec.states
            }


def named_states(
    optimizer: Optimizer, weights: Mapping[str, nn.Parameter], spec: OptimizerSpec
) -> list[tuple[str, str, Tensor]]:
    """Kind, weight and tensor of the states of ``weights``, as checkpoints name them."""
    return [
        (f"optimizer.{state}", name, optimizer.state[weight][state])
        for state in spec.states
        for name, weight in weights.items()
    ]


def set_updates(optimizer: Optimizer | TorchOptimizer, updates: int) -> None:
    """Set how many updates the states have seen."""
    for state in optimizer.state.values():
        state["step"].fill_(updates)


def set_learning_rate(optimizer: Optimizer | TorchOptimizer, learning_rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
