"""Pipeline parallelism: micro batches pass through stages of layers on different ranks.

    owns   each rank entire layers, in one stage or several (``stages``)
    moves  per micro batch and boundary, the residual stream (B, T, D) forwards and its gradient backwards

torch's schedules decide the order in which a rank works (``torch_schedules``). This file adds what training needs:

    data          only ranks with the first or the last stage read micro batches, but all if documents are masked: each
                  finds out by itself where documents start
    gradients     complete when the schedule has done a stage's last backward pass, or the last half of one, and sent
                  from there, stage by stage. Autograd's hooks are not used, because zero-bubble schedules compute weight
                  gradients outside of them (``linear.deferred_weight_gradients``)
    tied weights  the first stage's embedding and the last one's head are copies that must stay equal: their gradients
                  are summed over the two ranks before data ranks sum theirs, in a bucket and by an owner that do
                  not depend on what else a stage has

Validation runs only forward passes, one batch after the other, of any size.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from trainwright_trainer.data.loader import Batch
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.distributed.shard_spec import ShardSpecs
from trainwright_trainer.linear.deferred_weight_gradients import DeferredWeightGradients
from trainwright_trainer.model.key_value_cache import KeyValueCache
from trainwright_trainer.model.loss import HeadLoss
from trainwright_trainer.model.next_token import HeadLogits
from trainwright_trainer.model.transformer import Transformer
from trainwright_trainer.observe.step_timer import StepTimer, Timing
from trainwright_trainer.parallel.pipeline.stages import EMBEDDING, Stages, has_tied_head
from trainwright_trainer.parallel.pipeline.torch_schedules import (
    ActivationSpec,
    Schedule,
    StageModule,
    TrainingStage,
)
from trainwright_trainer.runtime.autocast import autocast


class GradientSink(Protocol):
    """Takes the gradients of the backward passes; every ``Updater`` is one."""

    def end_micro_batch(self) -> None:
        """The backward pass of one micro batch through one stage has ended."""

    def mark_ready(self, names: Collection[str]) -> None:
        """These weights have the gradients of all micro batches."""


class PipelineForwardBackward:
    """``ForwardBackward`` of a rank with some of the stages."""

    def __init__(
        self,
        model: Transformer,
        shard_specs: ShardSpecs,
        updater: GradientSink,
        mesh: Mesh,
        stages: Stages,
        activation: ActivationSpec,
        micro_batches: int,
        head_loss: HeadLoss,
        head_logits: HeadLogits,
        deferred: DeferredWeightGradients | None = None,
    ) -> None:
        """``model`` and ``shard_specs`` are the results of ``stages.split_model``.

        Args:
            deferred: takes the weight gradients of ``model``'s layers, for zero-bubble schedules.
        """
        self._model = model
        self._updater = updater
        self._device = mesh.device
        self._axis = mesh.pipeline
        self._stages = stages
        local = stages.of_rank(mesh.pipeline.rank)
        self._first, self._last = local[0].first, local[-1].last
        self._activation = activation
        self._loss_divisor = micro_batches * mesh.data.ranks
        self._head_loss = head_loss
        self._head_logits = head_logits
        self._tied = EMBEDDING in shard_specs.local and has_tied_head(shard_specs)
        self._stage_modules = [StageModule(model, stage, activation.precision) for stage in local]
        self._timer = StepTimer(mesh.device)
        self._schedule = self._build_schedule(shard_specs, micro_batches, deferred)

    def compute_gradients(self, micro_batches: Iterable[Batch], timer: StepTimer) -> Tensor:
        tokens, targets, starts = self._read_batches(micro_batches)
        timer.mark(Timing.DATA)
        self._timer = timer
        losses = self._schedule.step(tokens, targets, starts, timer)
        self.reduce_tied_gradient()
        total = torch.zeros((), device=self._device)
        for loss in losses:
            total += loss
        return total

    def sum_losses(self, batches: Iterable[Batch]) -> Tensor:
        total = torch.zeros(2, dtype=torch.float64, device=self._device)
        mine = iter(batches if self._reads_batches else ())
        while True:
            batch = next(mine, None)
            size = torch.tensor(0 if batch is None else len(batch.sequences), device=self._device)
            self._axis.broadcast(
                size, source=0
            )  # the first stage's rank knows whether there is another batch
            if not size:
                return total
            total += self._sum_batch_loss(batch.to(self._device) if batch else None, int(size))

    def next_logits(self, tokens_BT: Tensor, at_B: Tensor, cache: KeyValueCache) -> Tensor | None:
        sequences, positions = tokens_BT.shape
        x = self._forward(tokens_BT, sequences, positions, self._model.starts(tokens_BT, cache), cache)
        if not self._last:
            return None
        with autocast(self._activation.precision, self._device):
            return self._head_logits(self._model.norm(x), self._model.head, at_B)

    def _build_schedule(
        self, shard_specs: ShardSpecs, micro_batches: int, deferred: DeferredWeightGradients | None
    ) -> Schedule:
        running = [
            TrainingStage(
                layers,
                self._activation,
                self._axis,
                micro_batches,
                deferred,
                backward_done=self._updater.end_micro_batch,
                gradients_ready=partial(self._updater.mark_ready, layers.stage.weight_names(shard_specs)),
            )
            for layers in self._stage_modules
        ]
        return Schedule(self._stages.schedule, running, micro_batches, self._loss_in_step)

    @property
    def _reads_batches(self) -> bool:
        return self._first or self._last or self._model.end_of_text is not None

    def _read_batches(
        self, micro_batches: Iterable[Batch]
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """The step's tokens for the first stage, targets for the last one, and where documents start for all."""
        if not self._reads_batches:
            return None, None, None
        batches = [batch.to(self._device) for batch in micro_batches]
        tokens = torch.cat([batch.tokens for batch in batches])
        return (
            tokens if self._first else None,
            torch.cat([batch.targets for batch in batches]) if self._last else None,
            self._model.starts(tokens),
        )

    def _loss_in_step(self, x_BTD: Tensor, targets_BT: Tensor) -> Tensor:
        self._timer.mark(Timing.COLLECTIVES)
        loss = self._loss(x_BTD, targets_BT) / self._loss_divisor
        self._timer.mark(Timing.FORWARD)
        return loss

    def _loss(self, x_BTD: Tensor, targets_BT: Tensor) -> Tensor:
        with autocast(self._activation.precision, self._device):
            return self._head_loss(self._model.norm(x_BTD), self._model.head.weight, targets_BT)

    def reduce_tied_gradient(self) -> None:
        """Both copies of a tied weight have their gradients once the schedule has ended."""
        if not self._tied:
            return
        if not (self._first and self._last):
            (weight,) = self._model.embedding.parameters()
            assert weight.grad is not None
            weight.grad.add_(self._gradient_of_other_copy(weight.grad))
        self._updater.mark_ready([EMBEDDING])

    def _gradient_of_other_copy(self, gradient: Tensor) -> Tensor:
        """The gradient of the rank with the tied weight's other copy. A sum of two is the same on both, in
        either order.
        """
        ends = [self._stages.rank_of(0), self._stages.rank_of(len(self._stages.layers) - 1)]
        other = torch.empty_like(gradient)
        # Point-to-point: the ranks between the two have no memory for it, and a process group of two would be
        # one more for a single exchange.
        if self._first:
            self._axis.send(gradient, ends[1])
            self._axis.receive(other, ends[1])
        else:
            self._axis.receive(other, ends[0])
            self._axis.send(gradient, ends[0])
        return other

    def _sum_batch_loss(self, batch: Batch | None, sequences: int) -> Tensor:
        """(2,): summed loss and tokens of a batch on the rank that computes the loss; zeros elsewhere."""
        tokens = batch.tokens if batch and self._first else torch.empty(0)
        starts_BT = self._model.starts(batch.tokens) if batch else None
        x = self._forward(tokens, sequences, self._model.positions, starts_BT)
        if not (batch and self._last):
            return torch.zeros(2, dtype=torch.float64, device=self._device)
        tokens = torch.tensor(batch.targets.numel(), device=self._device)
        return torch.stack((self._loss(x, batch.targets).double() * tokens, tokens))

    def _forward(
        self,
        tokens_BT: Tensor,
        sequences: int,
        positions: int,
        starts_BT: Tensor | None,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """The output of this rank's last stage; only the first stage reads ``tokens_BT``."""
        received = self._activation._replace(sequences=sequences, positions=positions)
        x = tokens_BT
        for layers in self._stage_modules:
            stage = layers.stage
            if not stage.first and not self._is_here(stage.number - 1):
                x = received.empty(self._device)
                self._axis.receive(x, self._stages.rank_of(stage.number - 1))
            x = layers(x, starts_BT, positions, cache)
            if not stage.last and not self._is_here(stage.number + 1):
                self._axis.send(x, self._stages.rank_of(stage.number + 1))
        return x

    def _is_here(self, stage: int) -> bool:
        return self._stages.rank_of(stage) == self._axis.rank
