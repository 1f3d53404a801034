"""AdamW (Loshchilov & Hutter 2019)."""

from __future__ import annotations

from torch import nn
from torch.optim import AdamW
from torch.optim.adamw import adamw

from trainwright.contracts.training_spec import OptimizerSpec
from trainwright_trainer.optim.optimizer import Optimizer, weight_groups


class FusedAdamW(Optimizer):
    """Updates weights to the same bits as torch's fused AdamW."""

    def update(self, weights: list[nn.Parameter], learning_rate: float, weight_decay: float) -> None:
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
    groups = weight_groups(list(model.parameters()), spec)
    return AdamW(groups, lr=spec.learning_rate, betas=(spec.beta1, spec.beta2), eps=spec.epsilon, fused=True)
