"""The base of the optimizers of float32 weights.

What an optimizer declares for trainer and planner is in ``contracts.optimizer_spec``, which says how to add one. An optimizer
has the parts of the weights that this rank updates. An optimizer that updates each element independently, such as AdamW,
does not need to know which parts they are. If an optimizer needs norms of entire weights, or matrices, it calls
``WholeWeights``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer as TorchOptimizer

from trainwright.contracts.optimizer_spec import OptimizerSpec
from trainwright_trainer.optim.whole_weights import WholeWeights


@dataclass(frozen=True)
class WeightGroup:
    """Weights with gradients that one step updates in the same way."""

    weights: dict[str, nn.Parameter]
    learning_rate: float
    weight_decay: float


class Optimizer(ABC):
    """Weights and their states, under the names that torch's ``Optimizer`` uses.

    It is not derived from torch's class, whose construction imports the compiler, which takes 1.5 seconds.
    """

    def __init__(self, weights: Mapping[str, nn.Parameter], spec: OptimizerSpec, whole: WholeWeights) -> None:
        """Allocate the state.

        Args:
            weights: what this rank updates, entire or in part, by canonical name; it may be nothing.
            spec: the optimizer's settings.
            whole: sums and matrices of the entire weights, over all ranks.
        """
        self.param_groups = weight_groups(weights, spec)
        self.state: dict[nn.Parameter, dict[str, Tensor]] = {}
        self._spec = spec
        self._whole = whole
        set_learning_rate(self, spec.learning_rate)
        allocate_state(self, spec)

    @torch.no_grad()
    def step(self) -> None:
        """Update every weight that has a gradient; all ranks must call this."""
        self.update([_with_gradients(group) for group in self.param_groups])

    @abstractmethod
    def update(self, groups: list[WeightGroup]) -> None:
        """Update the weights of ``groups`` and their states, in place. Gradients may be overwritten."""

    def metrics(self) -> dict[str, float]:
        """Series values of the last update, equal on all ranks."""
        return {}


def weight_groups(weights: Mapping[str, nn.Parameter], spec: OptimizerSpec) -> list[dict[str, Any]]:
    """Groups of weights with the same decay and the same multiple of the learning rate; those that decay are first."""
    groups: dict[tuple[float, float], list[str]] = {}
    for name, weight in weights.items():
        decay = spec.weight_decay if spec.decays(name, weight.ndim) else 0.0
        groups.setdefault((decay, spec.learning_rate_factor(name, weight.ndim)), []).append(name)
    return [
        {
            "params": [weights[name] for name in names],
            "names": names,
            "weight_decay": decay,
            "learning_rate_factor": factor,
        }
        for (decay, factor), names in sorted(groups.items(), key=lambda group: -group[0][0])
    ]


def _with_gradients(group: Mapping[str, Any]) -> WeightGroup:
    named = zip(group["names"], group["params"], strict=True)
    weights = {name: weight for name, weight in named if weight.grad is not None}
    return WeightGroup(weights, group["lr"], group["weight_decay"])


def allocate_state(optimizer: Optimizer | TorchOptimizer, spec: OptimizerSpec) -> None:
    """Allocate the state that the first step would allocate, so it has the same tensors after any number of steps.

    The number of updates, ``step``, is a tensor on the weight's device, as torch's fused optimizers have it.
    """
    for group in optimizer.param_groups:
        for name, weight in zip(group["names"], group["params"], strict=True):
            updates = torch.zeros((), dtype=torch.float32, device=weight.device)
            optimizer.state[weight] = {"step": updates} | {
                state: torch.zeros_like(weight) for state in spec.states_of(name, weight.ndim)
            }


def named_states(
    optimizer: Optimizer, weights: Mapping[str, nn.Parameter], spec: OptimizerSpec
) -> list[tuple[str, str, Tensor]]:
    """Kind, weight and tensor of the states of ``weights``, as checkpoints name them."""
    kept = {name: spec.states_of(name, weight.ndim) for name, weight in weights.items()}
    kinds = dict.fromkeys(state for states in kept.values() for state in states)
    return [
        (f"optimizer.{state}", name, optimizer.state[weight][state])
        for state in kinds
        for name, weight in weights.items()
        if state in kept[name]
    ]


def set_updates(optimizer: Optimizer | TorchOptimizer, updates: int) -> None:
    """Set how many updates the states have seen."""
    for state in optimizer.state.values():
        state["step"].fill_(updates)


def set_learning_rate(optimizer: Optimizer | TorchOptimizer, learning_rate: float) -> None:
    """Set the learning rate of each group: its multiple of ``learning_rate``."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate * group["learning_rate_factor"]
