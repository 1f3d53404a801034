"""Which tensor first held a number that is not finite, over ranks of which each holds some."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from trainwright_trainer.mesh import Axis


def first_not_finite(
    weights: Mapping[str, nn.Parameter], order: Mapping[str, int], world: Axis
) -> str | None:
    """The first tensor of all ranks, as ``contracts.events.LAYER_SERIES`` names it; every rank must ask.

    Weights come first, in the order of the forward pass, then gradients in that of the backward pass.

    Args:
        weights: what this rank holds, by canonical name.
        order: number of every weight of the whole model, in the order of its forward pass.
    """
    tensors = len(order)
    bad = [
        order[name] if kind == "weight" else 2 * tensors - 1 - order[name]
        for name, kind, tensor in _held(weights)
        if not tensor.isfinite().all()
    ]
    # The least of all ranks' numbers, as axes know only the greatest.
    first = -int(world.max(torch.tensor(-min(bad, default=2 * tensors), device=world.device)))
    if first == 2 * tensors:
        return None
    names = {number: name for name, number in order.items()}
    return f"{names[first]}:weight" if first < tensors else f"{names[2 * tensors - 1 - first]}:gradient"


def _held(weights: Mapping[str, nn.Parameter]) -> Iterator[tuple[str, str, Tensor]]:
    for name, weight in weights.items():
        yield name, "weight", weight.detach()
        if weight.grad is not None:
            yield name, "gradient", weight.grad
