"""Deferred weight gradients: the two halves of a backward pass, computed at different times (Qi et al. 2023,
"Zero bubble").

The previous stage waits for the gradient by a layer's input. The gradient by its weight is needed only at the
end of the step and can fill time in which the rank would wait. torch can find the second half in autograd's
graph, but it traverses parts of the graph twice. Here layers defer it themselves: their backward pass
computes the first half and adds the second, a few lines of work, to a ``DeferredWeightGradients``. So every
function of the graph runs once, and what a layer observes in its backward pass is observed once.

Autograd never sees these gradients and calls no hooks for them: code that waits for them must follow the
schedule.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

GradientFunction = Callable[[], Tensor]
"""Computes the gradient of a weight."""


class DeferredWeightGradients:
    """Weight gradients of the last backward pass that are not computed yet."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Tensor, GradientFunction]] = []

    def add(self, weight: Tensor, gradient: GradientFunction) -> None:
        """Defer the gradient of ``weight``, a leaf."""
        self._waiting.append((weight, gradient))

    def take(self) -> Callable[[], None]:
        """Everything deferred so far; calling the result adds the gradients to those of their weights."""
        waiting, self._waiting = self._waiting, []

        @torch.no_grad()
        def compute() -> None:
            while waiting:  # each frees its inputs before the next is computed
                weight, gradient = waiting.pop(0)
                accumulate(weight, gradient())

        return compute


def accumulate(weight: Tensor, gradient: Tensor) -> None:
    """Add to ``weight.grad`` as autograd does, without calling its hooks."""
    if weight.grad is None:
        weight.grad = gradient.to(weight.dtype)
    else:
        weight.grad.add_(gradient)
