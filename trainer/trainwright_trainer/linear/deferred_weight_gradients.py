"""Deferred weight gradients: the two halves of a backward pass, computed at different times (Qi et al. 2023,
"Zero bubble").

The previous stage waits for the gradient by a layer's input. The gradient by its weight is needed only at the
end of the step and can fill time in which the rank would wait. torch can find the second half in autograd's
graph, but it traverses parts of the graph twice. Here layers defer it themselves: their backward pass
computes the first half and adds the second, a few lines of work, to a ``DeferredWeightGradients``. So every
function of the graph runs once, and what a layer observes in its backward pass is observed once.

Autograd does not see these gradients and calls no hooks for them, so code that waits for them must follow the schedule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class WeightGradient(NamedTuple):
    """The gradient of a weight, which is not computed yet."""

    weight: Tensor
    """A leaf."""

    compute: Callable[[], Tensor]
    add_to: Callable[[Tensor], None]
    """Adds it to a sum of the weight's shape and dtype."""


class DeferredWeightGradients:
    """Weight gradients of the last backward pass that are not computed yet."""

    def __init__(self) -> None:
        self._waiting: list[WeightGradient] = []

    def add(self, gradient: WeightGradient) -> None:
        """Defer ``gradient``."""
        self._waiting.append(gradient)

    def take(self) -> Callable[[], None]:
        """Everything deferred so far; calling the result adds the gradients to those of their weights."""
        waiting, self._waiting = self._waiting, []

        @torch.no_grad()
        def compute() -> None:
            while waiting:  # each frees its inputs before the next is computed
                accumulate(waiting.pop(0))

        return compute


def accumulate(gradient: WeightGradient) -> None:
    """Add to the weight's ``grad`` as autograd does, without calling its hooks."""
    weight = gradient.weight
    if weight.grad is None:
        weight.grad = gradient.compute().to(weight.dtype)
    else:
        gradient.add_to(weight.grad)
