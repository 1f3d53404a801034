"""AdamW (Loshchilov & Hutter 2019)."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn
from torch.optim import AdamW
from torch.optim.adamw import adamw

from trainwright.contracts.optimizer_spec import OptimizerSpec
from trainwright_trainer.optim.optimizer import Optimizer, WeightGroup, weight_groups


class FusedAdamW(Optimizer):
    """Updates weights to the same bits as torch's fused AdamW."""

    def update(self, groups: list[WeightGroup]) -> None:
        for group in groups:
            update_by_adamw(group, self.state, self._spec)


def torch_adamw(model: nn.Module, spec: OptimizerSpec, prefix: str = "") -> AdamW:
    """torch's own fused AdamW over ``model``.

    Args:
        prefix: what names have before those of weights.
    """
    names = {name.removeprefix(prefix): weight for name, weight in model.named_parameters()}
    groups = weight_groups(names, spec)
    return AdamW(groups, lr=spec.learning_rate, betas=(spec.beta1, spec.beta2), eps=spec.epsilon, fused=True)


def update_by_adamw(
    group: WeightGroup, state_of: Mapping[nn.Parameter, dict[str, Tensor]], spec: OptimizerSpec
) -> None:
    """Update the weights of ``group`` and their states in one fused call."""
    weights = list(group.weights.values())
    if not weights:
        return
    states = [state_of[weight] for weight in weights]
    adamw(
        [*weights],
        [_gradient(weight) for weight in weights],
        [state["exp_avg"] for state in states],
        [state["exp_avg_sq"] for state in states],
        [],
        [state["step"] for state in states],
        fused=True,
        amsgrad=False,
        maximize=False,
        beta1=spec.beta1,
        beta2=spec.beta2,
        eps=spec.epsilon,
        lr=group.learning_rate,
        weight_decay=group.weight_decay,
    )


def _gradient(weight: Tensor) -> Tensor:
    assert weight.grad is not None, "the backward pass has reached every weight"
    return weight.grad
