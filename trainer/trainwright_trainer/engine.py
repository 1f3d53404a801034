"""The engine: one optimizer step over the ranks, and nothing else of the training.

This is the seam behind which another engine can stand. It owns forward, backward, the loss and the finite check; what
becomes of the gradients is its updater's. It knows neither files nor schedules. A loss is scaled by
1 / (rounds · ranks) before its backward pass, so that sums over rounds and ranks are means over the global batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from trainwright.contracts.run_spec import PrecisionKind
from trainwright_trainer.data.loader import Batch
from trainwright_trainer.mesh import Mesh
from trainwright_trainer.model.loss import HeadLoss
from trainwright_trainer.model.transformer import Transformer
from trainwright_trainer.observe.throughput import Phase, StepClock
from trainwright_trainer.updater import Updater


class StepNumbers(NamedTuple):
    """What one step measured, equal on all ranks."""

    loss: float
    """Mean over the global batch, nats a token."""

    grad_norm: float
    """Before clipping."""

    not_finite: str | None = None
    """Of a step without an update: the first tensor that held a number that is not finite, where that is known."""

    @property
    def finite(self) -> bool:
        """Whether an update was made."""
        return math.isfinite(self.loss) and math.isfinite(self.grad_norm)

    @property
    def complaint(self) -> str:
        """What was wrong with a step that is not finite."""
        first = f"; the first tensor that was not finite: {self.not_finite}" if self.not_finite else ""
        return f"the loss was {self.loss} and the gradient norm {self.grad_norm}{first}"


class Engine(Protocol):
    """What the training loop needs."""

    model: Transformer
    updater: Updater

    def step(self, micro_batches: Iterable[Batch], learning_rate: float, clock: StepClock) -> StepNumbers:
        """Update the weights once, or leave them and the optimizer untouched where loss or norm is not finite.

        An updater that releases gradients has moved some or all of them before that is known: such a step is the last
        one, and its weights must not be used.
        """

    def mean_loss(self, batches: Iterable[Batch]) -> float:
        """Loss over the batches of all ranks, without learning from them."""


class TorchEngine:
    """PyTorch's autograd over ``model``, whose gradients go to ``updater``."""

    def __init__(
        self,
        model: Transformer,
        updater: Updater,
        mesh: Mesh,
        precision: PrecisionKind,
        accumulation_rounds: int,
        head_loss: HeadLoss,
    ) -> None:
        self.model = model
        self.updater = updater
        self._mesh = mesh
        self._precision = precision
        self._rounds = accumulation_rounds
        self._head_loss = head_loss

    def step(self, micro_batches: Iterable[Batch], learning_rate: float, clock: StepClock) -> StepNumbers:
        self.updater.begin(learning_rate)
        loss = self._accumulate(micro_batches, clock)
        self.updater.finish()
        self._mesh.sum(loss)
        clock.mark(Phase.COLLECTIVES)
        norm = self.updater.grad_norm()
        # Loss and norm are sums over all ranks by now: every rank sees the same numbers and decides alike.
        numbers = StepNumbers(*torch.stack((loss, norm)).tolist())
        if numbers.finite:
            self.updater.update(norm)
        else:
            numbers = numbers._replace(not_finite=self.updater.not_finite())
            self.updater.skip()
        clock.mark(Phase.OPTIMIZER)
        return numbers

    def mean_loss(self, batches: Iterable[Batch]) -> float:
        total = torch.zeros(2, dtype=torch.float64, device=self._mesh.device)
        self.model.eval()  # what FP8 layers see here belongs to no step
        with torch.no_grad():
            for batch in self._on_device(batches):
                tokens = batch.targets.numel()
                total += torch.stack(
                    (self._loss(batch).double() * tokens, torch.tensor(tokens, device=total.device))
                )
        self.model.train()
        summed, tokens = self._mesh.sum(total).tolist()
        return float(summed / tokens)

    def _accumulate(self, micro_batches: Iterable[Batch], clock: StepClock) -> Tensor:
        """Backward passes of all rounds; the last one sends gradients as they come. Returns this rank's loss."""
        total = torch.zeros((), device=self._mesh.device)
        for round_index, batch in enumerate(self._on_device(micro_batches), start=1):
            clock.mark(Phase.DATA)
            loss = self._loss(batch) / (self._rounds * self._mesh.ranks)
            total += loss.detach()
            clock.mark(Phase.FORWARD)
            if round_index == self._rounds:
                self.updater.last_round()
            loss.backward()  # type: ignore[no-untyped-call]
            if round_index < self._rounds:
                self.updater.end_round()
            clock.mark(Phase.BACKWARD)
        return total

    def _loss(self, batch: Batch) -> Tensor:
        with self._autocast():
            features = self.model.features(batch.tokens)
            return self._head_loss(features, self.model.head.weight, batch.targets)

    def _autocast(self) -> AbstractContextManager[object]:
        if self._precision is not PrecisionKind.BF16:
            return nullcontext()
        return torch.autocast(self._mesh.device.type, dtype=torch.bfloat16)

    def _on_device(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        for batch in batches:
            yield batch.to(self._mesh.device)
