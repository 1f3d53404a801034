"""AdamW (Loshchilov & Hutter 2019): matrices get weight decay, norms and other vectors do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW
from torch.optim.adamw import adamw

from trainwright.contracts.training_spec import OptimizerSpec

MOMENTS = ("exp_avg", "exp_avg_sq")
"""torch's names of the first and second moments."""


class FusedAdamW:
    """torch's fused AdamW without its ``Optimizer`` class, whose construction imports the compiler, which
    takes 1.5 seconds.

    It has the same ``state`` and ``param_groups``, and updates weights to the same bits.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], spec: OptimizerSpec) -> None:
        self.param_groups: list[dict[str, Any]] = _groups(parameters, spec)
        self.state: dict[nn.Parameter, dict[str, Tensor]] = {}
        self._spec = spec
        set_learning_rate(self, spec.learning_rate)
        allocate_state(self)

    @torch.no_grad()
    def step(self) -> None:
        """Update every weight that has a gradient."""
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            if weights:
                self._update(weights, group["lr"], group["weight_decay"])

    def _update(self, weights: list[nn.Parameter], learning_rate: float, weight_decay: float) -> None:
        states = [self.state[weight] for weight in weights]
        adamw(
            weights,  # type: ignore[arg-type]
            [weight.grad for weight in weights],  # type: ignore[misc]
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            fused=True,
            amsgrad=False,
            maximize=False,
            beta1=self._spec.beta1,
            beta2=self._spec.beta2,
            eps=self._spec.epsilon,
            lr=learning_rate,
            weight_decay=weight_decay,
        )


def build_adamw(model: nn.Module, spec: OptimizerSpec) -> AdamW:
    """torch's own fused AdamW over ``model``, for code that needs its class."""
    return adamw_over(list(model.parameters()), spec)


def adamw_over(parameters: Sequence[nn.Parameter], spec: OptimizerSpec) -> AdamW:
    """Like ``build_adamw``, for any list of weights, even an empty one."""
    groups = _groups(parameters, spec)
    return AdamW(groups, lr=spec.learning_rate, betas=(spec.beta1, spec.beta2), eps=spec.epsilon, fused=True)


def _groups(parameters: Sequence[nn.Parameter], spec: OptimizerSpec) -> list[dict[str, Any]]:
    return [
        {"params": [weight for weight in parameters if weight.ndim >= 2], "weight_decay": spec.weight_decay},
        {"params": [weight for weight in parameters if weight.ndim < 2], "weight_decay": 0.0},
    ]


def allocate_state(optimizer: AdamW | FusedAdamW) -> None:
    """Allocate the state that the first step would: so it has the same tensors after any number of steps.

    With ``fused=True`` the number of updates is also a tensor on the weight's device.
    """
    for group in optimizer.param_groups:
        for weight in group["params"]:
            updates = torch.zeros((), dtype=torch.float32, device=weight.device)
            optimizer.state[weight] = {"step": updates} | {
                moment: torch.zeros_like(weight) for moment in MOMENTS
            }


def set_updates(optimizer: AdamW | FusedAdamW, updates: int) -> None:
    """Set how many updates the moments have seen."""
    for state in optimizer.state.values():
        state["step"].fill_(updates)


def set_learning_rate(optimizer: AdamW | FusedAdamW, learning_rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
