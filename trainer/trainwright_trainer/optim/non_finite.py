"""The first tensor with a value that is not finite, over ranks that each have some of the tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from trainwright_trainer.distributed.axis import Axis


def first_non_finite(
    weights: Mapping[str, nn.Parameter], order: Mapping[str, int], world: Axis
) -> str | None:
    """The first such tensor of all ranks, as ``contracts.series.FAMILIES`` names it; every rank must call this.

    Weights come first, in the order of the forward pass, then gradients in that of the backward pass.

    Args:
        weights: the weights of this rank, by canonical name.
        order: index of every weight of the entire model, in the order of its forward pass.
    """
    tensors = len(order)
    bad = [
        order[name] if kind == "weight" else 2 * tensors - 1 - order[name]
        for name, kind, tensor in _held(weights)
        if not tensor.isfinite().all()
    ]
    # A minimum over all ranks, since axes only have a maximum.
    first = -int(world.all_reduce_max(torch.tensor(-min(bad, default=2 * tensors), device=world.device)))
    if first == 2 * tensors:
        return None
    names = {number: name for name, number in order.items()}
    return f"{names[first]}:weight" if first < tensors else f"{names[2 * tensors - 1 - first]}:gradient"


def _held(weights: Mapping[str, nn.Parameter]) -> Iterator[tuple[str, str, Tensor]]:
    for name, weight in weights.items():
        yield name, "weight", weight.detach()
        if weight.grad is not None:
            yield name, "gradient", weight.grad
