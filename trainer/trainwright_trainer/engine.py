"""The engine: one optimizer step over the ranks, and nothing else of the training.

This is the seam behind which another engine can stand. It owns forward, backward, the reduction of gradients, the
finite check and the update; it knows neither files nor schedules. A loss is scaled by 1 / (rounds · ranks) before
its backward pass, so that sums over rounds and ranks are means over the global batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from trainwright.contracts.run_spec import PrecisionKind
from trainwright_trainer.data.loader import Batch
from trainwright_trainer.ends import DivergedError
from trainwright_trainer.mesh import Mesh
from trainwright_trainer.model.loss import next_token_loss
from trainwright_trainer.observe.throughput import Phase, StepClock
from trainwright_trainer.optim.adamw import set_learning_rate
from trainwright_trainer.optim.clip import clip, global_norm
from trainwright_trainer.parallel.replicate import GradientBuckets


class StepNumbers(NamedTuple):
    """What one step measured, equal on all ranks."""

    loss: float
    """Mean over the global batch, nats a token."""

    grad_norm: float
    """Before clipping."""


class Engine(Protocol):
    """What the training loop needs."""

    model: nn.Module
    optimizer: AdamW

    def step(self, micro_batches: Iterable[Batch], learning_rate: float, clock: StepClock) -> StepNumbers:
        """Update the weights once.

        Raises:
            DivergedError: loss or gradient norm is not finite; weights and optimizer are untouched.
        """

    def mean_loss(self, batches: Iterable[Batch]) -> float:
        """Loss over the batches of all ranks, without learning from them."""


class TorchEngine:
    """PyTorch's autograd with replicated weights in float32."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: AdamW,
        mesh: Mesh,
        precision: PrecisionKind,
        accumulation_rounds: int,
        clip_norm: float | None,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self._mesh = mesh
        self._precision = precision
        self._rounds = accumulation_rounds
        self._clip_norm = clip_norm
        self._parameters = list(model.parameters())
        self._buckets = GradientBuckets(self._parameters, mesh) if mesh.ranks > 1 else None

    def step(self, micro_batches: Iterable[Batch], learning_rate: float, clock: StepClock) -> StepNumbers:
        self._clear_gradients()
        loss = self._accumulate(micro_batches, clock)
        if self._buckets:
            self._buckets.wait()
        self._mesh.sum(loss)
        clock.mark(Phase.COLLECTIVES)
        norm = global_norm(self._parameters)
        numbers = StepNumbers(*torch.stack((loss, norm)).tolist())
        _check_finite(numbers)
        clip(self._parameters, norm, self._clip_norm)
        set_learning_rate(self.optimizer, learning_rate)
        self.optimizer.step()
        clock.mark(Phase.OPTIMIZER)
        return numbers

    def mean_loss(self, batches: Iterable[Batch]) -> float:
        total = torch.zeros(2, dtype=torch.float64, device=self._mesh.device)
        with torch.no_grad():
            for batch in self._on_device(batches):
                tokens = batch.targets.numel()
                total += torch.stack(
                    (self._loss(batch).double() * tokens, torch.tensor(tokens, device=total.device))
                )
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
            if self._buckets and round_index == self._rounds:
                self._buckets.send_as_ready()
            loss.backward()  # type: ignore[no-untyped-call]
            clock.mark(Phase.BACKWARD)
        return total

    def _loss(self, batch: Batch) -> Tensor:
        with self._autocast():
            return next_token_loss(self.model(batch.tokens), batch.targets)

    def _autocast(self) -> AbstractContextManager[object]:
        in_bf16 = self._precision is PrecisionKind.BF16
        return torch.autocast(self._mesh.device.type, dtype=torch.bfloat16, enabled=in_bf16)

    def _clear_gradients(self) -> None:
        if self._buckets:
            self._buckets.clear()
        else:
            self.optimizer.zero_grad(set_to_none=True)

    def _on_device(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        for batch in batches:
            yield batch.to(self._mesh.device)


def _check_finite(numbers: StepNumbers) -> None:
    """Loss and norm are sums over all ranks by now: every rank sees the same numbers and decides alike."""
    if not all(map(_is_finite, numbers)):
        raise DivergedError(f"the loss was {numbers.loss} and the gradient norm {numbers.grad_norm}")


def _is_finite(number: float) -> bool:
    return abs(number) < float("inf")
