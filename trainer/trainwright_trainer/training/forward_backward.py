"""Forward and backward passes over the micro batches of a step.

``GradientAccumulation`` runs them one after the other over an entire model;
``parallel.pipeline.pipelined_forward_backward`` runs them over pipeline stages. A loss is scaled by 1 / (micro batches
· data ranks) before its backward pass, so that sums over micro batches and data ranks are means over the
global batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

import torch
from torch import Tensor

from trainwright.contracts.precision_spec import PrecisionKind
from trainwright_trainer.data.loader import Batch
from trainwright_trainer.distributed.axis import Axis
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.distributed.progress_counters import counted
from trainwright_trainer.model.key_value_cache import KeyValueCache
from trainwright_trainer.model.loss import HeadLoss
from trainwright_trainer.model.next_token import HeadLogits
from trainwright_trainer.model.transformer import Transformer
from trainwright_trainer.observe.step_timer import StepTimer, Timing
from trainwright_trainer.optim.updater import Updater
from trainwright_trainer.runtime.autocast import autocast


class ForwardBackward(Protocol):
    """The interface that the engine needs."""

    def compute_gradients(self, micro_batches: Iterable[Batch], timer: StepTimer) -> Tensor:
        """Leave the summed gradients of all micro batches with the updater, and tell it when they are complete.

        Returns:
            This data rank's share of the mean loss, a scalar; zero on ranks that compute none. Ranks that
            need no micro batches do not read them.
        """

    def sum_losses(self, batches: Iterable[Batch]) -> Tensor:
        """(2,) float64: the summed loss of this data rank's batches and their tokens; zeros on ranks that
        compute none.
        """

    def next_logits(self, tokens_BT: Tensor, at_B: Tensor, cache: KeyValueCache) -> Tensor | None:
        """Logits (B, V) of the tokens after ``tokens_BT[:, at_B]``; None on ranks that have none.

        All ranks call it with the same tokens. Positions after ``at_B`` may have any token, because attention is
        causal.
        """


def padding_batches(count: int, gathering: Axis, positions: int) -> Iterator[Batch]:
    """Dummy batches, so that all ranks run as many forward passes as the rank with the most batches.

    Args:
        count: batches of this rank.
        gathering: ranks from which each forward pass gathers weights; they would wait for a rank that runs
            fewer.
        positions: tokens of a sequence.
    """
    most = int(gathering.all_reduce_max(torch.tensor(count, device=gathering.device)))
    tokens = torch.zeros(1, positions + 1, dtype=torch.int64, device=gathering.device)
    for _ in range(most - count):
        yield Batch(tokens)


class GradientAccumulation:
    """One micro batch after the other, forward and backward."""

    def __init__(
        self,
        model: Transformer,
        updater: Updater,
        mesh: Mesh,
        precision: PrecisionKind,
        accumulation_steps: int,
        head_loss: HeadLoss,
        head_logits: HeadLogits,
        gathering: Axis | None = None,
    ) -> None:
        """``gathering``: ranks from which each forward pass gathers weights, so that all must run equally
        many.
        """
        self._model = model
        self._gathering = gathering
        self._updater = updater
        self._device = mesh.device
        self._precision = precision
        self._accumulation_steps = accumulation_steps
        self._loss_divisor = accumulation_steps * mesh.data.ranks
        self._head_loss = head_loss
        self._head_logits = head_logits

    def compute_gradients(self, micro_batches: Iterable[Batch], timer: StepTimer) -> Tensor:
        total = torch.zeros((), device=self._device)
        for index, cpu_batch in enumerate(micro_batches, start=1):
            batch = cpu_batch.to(self._device)
            timer.mark(Timing.DATA)
            loss = self._loss(batch) / self._loss_divisor
            total += loss.detach()
            timer.mark(Timing.FORWARD)
            if index == self._accumulation_steps:
                self._updater.begin_last_micro_batch()
            loss.backward()
            if index < self._accumulation_steps:
                self._updater.end_micro_batch()
            timer.mark(Timing.BACKWARD)
        return total

    def sum_losses(self, batches: Iterable[Batch]) -> Tensor:
        total = torch.zeros(2, dtype=torch.float64, device=self._device)
        if self._gathering is not None:
            batches = list(batches)
            for idle in padding_batches(len(batches), self._gathering, self._model.positions):
                self._loss(idle)
            batches = counted(batches, self._gathering.progress)
        for cpu_batch in batches:
            batch = cpu_batch.to(self._device)
            tokens = torch.tensor(batch.targets.numel(), device=self._device)
            total += torch.stack((self._loss(batch).double() * tokens, tokens))
        return total

    def next_logits(self, tokens_BT: Tensor, at_B: Tensor, cache: KeyValueCache) -> Tensor:
        with autocast(self._precision, self._device):
            return self._head_logits(self._model.features(tokens_BT, cache), self._model.head, at_B)

    def _loss(self, batch: Batch) -> Tensor:
        with autocast(self._precision, self._device):
            features = self._model.features(batch.tokens)
            return self._head_loss(features, self._model.head.weight, batch.targets)
