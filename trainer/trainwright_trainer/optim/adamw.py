"""AdamW (Loshchilov & Hutter 2019): matrices decay, norms and other vectors do not."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.optim import AdamW

from trainwright.contracts.training_spec import OptimizerSpec

MOMENTS = ("exp_avg", "exp_avg_sq")
"""torch's names of the first and the second moment."""


def build_adamw(model: nn.Module, spec: OptimizerSpec) -> AdamW:
    """One fused AdamW over ``model``; its learning rate is set anew at each step."""
    return adamw_over(list(model.parameters()), spec)


def adamw_over(parameters: Sequence[nn.Parameter], spec: OptimizerSpec) -> AdamW:
    """``build_adamw`` of some weights, also of none."""
    groups = [
        {"params": [weight for weight in parameters if weight.ndim >= 2], "weight_decay": spec.weight_decay},
        {"params": [weight for weight in parameters if weight.ndim < 2], "weight_decay": 0.0},
    ]
    return AdamW(groups, lr=spec.learning_rate, betas=(spec.beta1, spec.beta2), eps=spec.epsilon, fused=True)


def allocate_state(optimizer: AdamW) -> None:
    """Give every weight the state that the first step would: it then has the same tensors after any number of steps.

    With ``fused=True`` the number of updates too is a tensor on the weight's device.
    """
    for group in optimizer.param_groups:
        for weight in group["params"]:
            made = torch.zeros((), dtype=torch.float32, device=weight.device)
            optimizer.state[weight] = {"step": made} | {
                moment: torch.zeros_like(weight) for moment in MOMENTS
            }


def set_updates(optimizer: AdamW, updates: int) -> None:
    """Say how many updates the moments have seen."""
    for state in optimizer.state.values():
        state["step"].fill_(updates)


def set_learning_rate(optimizer: AdamW, learning_rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
