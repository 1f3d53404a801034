"""AdamW (Loshchilov & Hutter 2019): matrices decay, norms and other vectors do not."""

from __future__ import annotations

from torch import nn
from torch.optim import AdamW

from trainwright.contracts.run_spec import OptimizerSpec


def build_adamw(model: nn.Module, spec: OptimizerSpec) -> AdamW:
    """One fused AdamW over ``model``; its learning rate is set anew at each step."""
    parameters = list(model.parameters())
    groups = [
        {"params": [weight for weight in parameters if weight.ndim >= 2], "weight_decay": spec.weight_decay},
        {"params": [weight for weight in parameters if weight.ndim < 2], "weight_decay": 0.0},
    ]
    return AdamW(groups, lr=spec.learning_rate, betas=(spec.beta1, spec.beta2), eps=spec.epsilon, fused=True)


def set_learning_rate(optimizer: AdamW, learning_rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
