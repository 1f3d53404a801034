"""The engine: one optimizer step over the ranks, and nothing else of the training.

This is the seam behind which another engine can stand. It owns the passes, the loss and the finite check; how forward and
backward passes follow each other is its ``Passes``' affair, and what becomes of the gradients its updater's. It knows
neither files nor schedules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from trainwright_trainer.data.loader import Batch
from trainwright_trainer.mesh import Mesh, naming_lost_ranks
from trainwright_trainer.model.transformer import Transformer
from trainwright_trainer.observe.throughput import Phase, StepClock
from trainwright_trainer.passes import Passes
from trainwright_trainer.updater import Updater


class StepNumbers(NamedTuple):
    """What one step measured, equal on all ranks."""

    loss: float
    """Mean over the global batch, nats a token."""

    grad_norm: float
    """Before clipping."""

    not_finite: str | None = None
    """Of a step without an update: the first tensor that held a number that is not finite, where that is known."""

    leaving: bool = False
    """Somebody asked for it, and all ranks have heard: this step is the last one for now."""

    @property
    def finite(self) -> bool:
        """Whether an update was made."""
        return math.isfinite(self.loss) and math.isfinite(self.grad_norm)

    @property
    def complaint(self) -> str:
        """What was wrong with a step that is not finite."""
        first = f"; the first tensor that was not finite: {self.not_finite}" if self.not_finite else ""
        return f"the loss was {self.loss} and the gradient norm {self.grad_norm}{first}"


Asked = Callable[[], bool]
"""Whether somebody wants the training to leave, asked once a step when its passes are made."""


def nobody_asks() -> bool:
    return False


def with_question(loss: Tensor, asked: Asked) -> Tensor:
    """(2,): this rank's loss, and 1 where ``asked`` says so; the sums over the ranks are for ``as_numbers``."""
    return torch.stack((loss, torch.ones_like(loss) if asked() else torch.zeros_like(loss)))


def as_numbers(sums: Tensor, norm: Tensor) -> StepNumbers:
    """What all ranks found, read from the device at once."""
    loss, asking, norm_of_all = torch.cat((sums, norm.reshape(1))).tolist()
    return StepNumbers(loss, norm_of_all, leaving=asking > 0)


class Engine(Protocol):
    """What the training loop needs."""

    model: Transformer
    updater: Updater

    def step(
        self,
        micro_batches: Iterable[Batch],
        learning_rate: float,
        clock: StepClock,
        asked: Asked = nobody_asks,
    ) -> StepNumbers:
        """Update the weights once, or leave them and the optimizer untouched where loss or norm is not finite.

        An updater that releases gradients has moved some or all of them before that is known: such a step is the last
        one, and its weights must not be used. ``asked`` says, on any one rank, whether the ranks are to leave; it
        travels with the step's own sums.
        """

    def mean_loss(self, batches: Iterable[Batch]) -> float:
        """Loss over the batches of all ranks, without learning from them."""


class TorchEngine:
    """PyTorch's autograd, whose passes are made by ``passes`` and whose gradients go to ``updater``."""

    def __init__(self, model: Transformer, updater: Updater, mesh: Mesh, passes: Passes) -> None:
        self.model = model
        self.updater = updater
        self._mesh = mesh
        self._passes = passes

    def step(
        self,
        micro_batches: Iterable[Batch],
        learning_rate: float,
        clock: StepClock,
        asked: Asked = nobody_asks,
    ) -> StepNumbers:
        self.updater.begin(learning_rate)
        with naming_lost_ranks():
            loss = self._passes.learn(micro_batches, clock)
        self.updater.finish()
        sums = self._of_all_ranks(with_question(loss, asked))
        clock.mark(Phase.COLLECTIVES)
        norm = self.updater.grad_norm()
        # Loss and norm are sums over all ranks by now: every rank sees the same numbers and decides alike.
        numbers = as_numbers(sums, norm)
        if numbers.finite:
            self.updater.update(norm)
        else:
            numbers = numbers._replace(not_finite=self.updater.not_finite())
            self.updater.skip()
        clock.mark(Phase.OPTIMIZER)
        return numbers

    def mean_loss(self, batches: Iterable[Batch]) -> float:
        self.model.eval()  # what FP8 layers see here belongs to no step
        with torch.no_grad(), naming_lost_ranks():
            total = self._passes.measure(batches)
        self.model.train()
        summed, tokens = self._over_all(total).tolist()
        return float(summed / tokens)

    def _of_all_ranks(self, sums: Tensor) -> Tensor:
        """As ``_over_all``, and on every rank the same. Ranks of one tensor axis have found the same loss: its mean counts,
        so that one which found another is not passed over."""
        if self._mesh.tensor.ranks == 1:
            return self._over_all(sums)
        return self._mesh.world.sum(sums / self._mesh.tensor.ranks)

    def _over_all(self, number: Tensor) -> Tensor:
        """Add up, in place, what data ranks found. In a pipeline only the ranks with the loss have more than zeros."""
        return self._mesh.pipeline.sum(self._mesh.data.sum(number))
