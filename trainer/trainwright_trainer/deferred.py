"""Weight gradients that wait: the two halves of a backward pass made apart (Qi et al. 2023, "Zero bubble").

The gradient by a layer's input is what the stage before waits for; that by its weight is wanted at the step's end only, and
can fill the time in which a rank would wait itself. torch can find the second half in autograd's graph, but walks parts
of the graph twice for it. Here layers put it aside themselves: their backward pass computes the first half and leaves the
second, a few lines of work, in a ``Deferred``. So every function of the graph is run once, and what a layer observes in its
backward pass is observed once.

Autograd never learns of such gradients, and its hooks never tell of them: whoever waits for them listens to the schedule.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Work = Callable[[], Tensor]
"""Computes the gradient of a weight."""


class Deferred:
    """Weight gradients of the backward pass that was made last, still to be computed."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Tensor, Work]] = []

    def add(self, weight: Tensor, gradient: Work) -> None:
        """Put the gradient of ``weight``, a leaf, aside."""
        self._waiting.append((weight, gradient))

    def take(self) -> Callable[[], None]:
        """What waits now; calling it adds the gradients to those of their weights."""
        waiting, self._waiting = self._waiting, []

        @torch.no_grad()
        def compute() -> None:
            while waiting:  # what one needs is let go before the next is made
                weight, gradient = waiting.pop(0)
                accumulate(weight, gradient())

        return compute


def accumulate(weight: Tensor, gradient: Tensor) -> None:
    """Add to ``weight.grad`` as autograd does, without its hooks."""
    if weight.grad is None:
        weight.grad = gradient.to(weight.dtype)
    else:
        weight.grad.add_(gradient)
