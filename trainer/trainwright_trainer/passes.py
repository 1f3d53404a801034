"""Forward and backward passes over the micro batches of a step.

``Rounds`` makes them one after the other over a whole model; ``parallel.pipeline.passes`` makes them over the stages of one.
A loss is scaled by 1 / (rounds · data ranks) before its backward pass, so that sums over rounds and data ranks are means
over the global batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch
from torch import Tensor

from trainwright.contracts.precision_spec import PrecisionKind
from trainwright_trainer.data.loader import Batch
from trainwright_trainer.mesh import Axis, Mesh
from trainwright_trainer.model.loss import HeadLoss
from trainwright_trainer.model.transformer import Transformer
from trainwright_trainer.observe.throughput import Phase, StepClock
from trainwright_trainer.updater import Updater


class Passes(Protocol):
    """What the engine needs."""

    def learn(self, micro_batches: Iterable[Batch], clock: StepClock) -> Tensor:
        """Leave the gradients of all rounds with the updater, which is told when they are complete.

        Returns:
            This data rank's share of the mean loss, a scalar; zero on ranks that compute none. The micro batches are not
            asked for on ranks that need none of them.
        """

    def measure(self, batches: Iterable[Batch]) -> Tensor:
        """(2,) float64: the summed loss of this data rank's batches and their tokens; zeros on ranks that compute none."""


def autocast(precision: PrecisionKind, device: torch.device) -> AbstractContextManager[object]:
    """What a forward pass in ``precision`` runs under."""
    if precision is not PrecisionKind.BF16:
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)


def idle_batches(count: int, gathering: Axis, positions: int) -> Iterator[Batch]:
    """Batches to go forward with for nothing, so many that with ``count`` of their own all ranks make as many passes.

    Args:
        gathering: ranks of which each forward pass gathers weights: they wait for one that makes fewer.
        positions: tokens of a sequence.
    """
    most = int(gathering.max(torch.tensor(count, device=gathering.device)))
    tokens = torch.zeros(1, positions + 1, dtype=torch.int64, device=gathering.device)
    for _ in range(most - count):
        yield Batch(tokens)


class Rounds:
    """One micro batch after the other, forward and backward."""

    def __init__(
        self,
        model: Transformer,
        updater: Updater,
        mesh: Mesh,
        precision: PrecisionKind,
        rounds: int,
        head_loss: HeadLoss,
        gathering: Axis | None = None,
    ) -> None:
        """``gathering``: ranks of which each forward pass gathers weights, so that all must make as many."""
        self._model = model
        self._gathering = gathering
        self._updater = updater
        self._device = mesh.device
        self._precision = precision
        self._rounds = rounds
        self._parts = rounds * mesh.data.ranks
        self._head_loss = head_loss

    def learn(self, micro_batches: Iterable[Batch], clock: StepClock) -> Tensor:
        total = torch.zeros((), device=self._device)
        for round_index, cpu_batch in enumerate(micro_batches, start=1):
            batch = cpu_batch.to(self._device)
            clock.mark(Phase.DATA)
            loss = self._loss(batch) / self._parts
            total += loss.detach()
            clock.mark(Phase.FORWARD)
            if round_index == self._rounds:
                self._updater.last_round()
            loss.backward()  # type: ignore[no-untyped-call]
            if round_index < self._rounds:
                self._updater.end_round()
            clock.mark(Phase.BACKWARD)
        return total

    def measure(self, batches: Iterable[Batch]) -> Tensor:
        total = torch.zeros(2, dtype=torch.float64, device=self._device)
        if self._gathering is not None:
            batches = list(batches)
            for idle in idle_batches(len(batches), self._gathering, self._model.positions):
                self._loss(idle)
        for cpu_batch in batches:
            batch = cpu_batch.to(self._device)
            tokens = torch.tensor(batch.targets.numel(), device=self._device)
            total += torch.stack((self._loss(batch).double() * tokens, tokens))
        return total

    def _loss(self, batch: Batch) -> Tensor:
        with autocast(self._precision, self._device):
            features = self._model.features(batch.tokens)
            return self._head_loss(features, self._model.head.weight, batch.targets)
