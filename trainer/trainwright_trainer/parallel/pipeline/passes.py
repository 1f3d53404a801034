"""Pipeline parallelism: micro batches flow through stages of layers that lie on different ranks.

    owns   each rank whole layers, in one stage or several (``stages``)
    moves  per micro batch and boundary, the residual stream (B, T, D) forwards and its gradient backwards

torch's schedules decide in which order a rank works (``schedules``). This file makes a training's passes of it:

    data          only ranks with the first or the last stage ask for micro batches
    gradients     complete when the schedule has done a stage's last backward pass, or the last half of one, and are sent
                  from there, stage by stage. Autograd's hooks are not listened to: zero-bubble schedules give weights
                  their gradients without them (``deferred``)
    tied weights  the first stage's embedding and the last one's head are copies that must move alike: their gradients are
                  added up over the two ranks before data ranks add up theirs, in a bucket and by an owner that do
                  not depend on what else a stage holds

Validation only goes forward, one batch after the other, of any size.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import torch
from torch import Tensor

from trainwright_trainer.data.loader import Batch
from trainwright_trainer.deferred import Deferred
from trainwright_trainer.mesh import Mesh
from trainwright_trainer.model.loss import HeadLoss
from trainwright_trainer.model.transformer import Transformer
from trainwright_trainer.observe.throughput import Phase, StepClock
from trainwright_trainer.parallel.pipeline.deferred_linear import defer_weight_gradients
from trainwright_trainer.parallel.pipeline.schedules import Flow, RunningStage, Schedule, StageModule
from trainwright_trainer.parallel.pipeline.stages import EMBEDDING, Stages, tied
from trainwright_trainer.parts import Parts
from trainwright_trainer.passes import autocast
from trainwright_trainer.updater import Updater


class PipelinePasses:
    """``Passes`` of a rank that holds some of the stages."""

    def __init__(
        self,
        model: Transformer,
        parts: Parts,
        updater: Updater,
        mesh: Mesh,
        stages: Stages,
        flow: Flow,
        rounds: int,
        head_loss: HeadLoss,
    ) -> None:
        """``model`` and ``parts`` are what ``stages.cut`` has left of them."""
        self._model = model
        self._updater = updater
        self._device = mesh.device
        self._axis = mesh.pipeline
        self._stages = stages
        held = stages.of(mesh.pipeline.rank)
        self._first, self._last = held[0].first, held[-1].last
        self._flow = flow
        self._parts = rounds * mesh.data.ranks
        self._head_loss = head_loss
        self._tied = EMBEDDING in parts.held and tied(parts)
        self._layers = [StageModule(model, stage, flow.precision) for stage in held]
        self._clock = StepClock(mesh.device)
        self._schedule = self._scheduled(parts, rounds)

    def learn(self, micro_batches: Iterable[Batch], clock: StepClock) -> Tensor:
        tokens, targets = self._read(micro_batches)
        clock.mark(Phase.DATA)
        self._clock = clock
        losses = self._schedule.step(tokens, targets, clock)
        self._complete_tied()
        total = torch.zeros((), device=self._device)
        for loss in losses:
            total += loss
        return total

    def measure(self, batches: Iterable[Batch]) -> Tensor:
        total = torch.zeros(2, dtype=torch.float64, device=self._device)
        mine = iter(batches if self._first or self._last else ())
        while True:
            batch = next(mine, None)
            size = torch.tensor(0 if batch is None else len(batch.sequences), device=self._device)
            self._axis.broadcast(size, source=0)  # the first stage's rank knows whether there is one more
            if not size:
                return total
            total += self._measure_one(batch.to(self._device) if batch else None, int(size))

    def _scheduled(self, parts: Parts, rounds: int) -> Schedule:
        kind = self._stages.schedule
        deferred = None
        if kind.is_zero_bubble:
            deferred = Deferred()
            defer_weight_gradients(self._model, deferred)
        running = [
            RunningStage(
                layers,
                self._flow,
                self._axis,
                rounds,
                deferred,
                ended=self._updater.end_round,
                complete=partial(self._updater.complete, layers.stage.names(parts)),
            )
            for layers in self._layers
        ]
        return Schedule(kind, running, rounds, self._loss_in_step)

    def _read(self, micro_batches: Iterable[Batch]) -> tuple[Tensor | None, Tensor | None]:
        """The step's tokens for the first stage, and targets for the last one; nothing is asked for without either."""
        if not (self._first or self._last):
            return None, None
        batches = [batch.to(self._device) for batch in micro_batches]
        return (
            torch.cat([batch.tokens for batch in batches]) if self._first else None,
            torch.cat([batch.targets for batch in batches]) if self._last else None,
        )

    def _loss_in_step(self, x_BTD: Tensor, targets_BT: Tensor) -> Tensor:
        self._clock.mark(Phase.COLLECTIVES)
        loss = self._loss(x_BTD, targets_BT) / self._parts
        self._clock.mark(Phase.FORWARD)
        return loss

    def _loss(self, x_BTD: Tensor, targets_BT: Tensor) -> Tensor:
        with autocast(self._flow.precision, self._device):
            return self._head_loss(self._model.norm(x_BTD), self._model.head.weight, targets_BT)

    def _complete_tied(self) -> None:
        """Both places of a tied weight have their gradients when the whole schedule is done."""
        if not self._tied:
            return
        if not (self._first and self._last):
            (weight,) = self._model.embedding.parameters()
            assert weight.grad is not None
            weight.grad.add_(self._of_other_place(weight.grad))
        self._updater.complete([EMBEDDING])

    def _of_other_place(self, gradient: Tensor) -> Tensor:
        """What the rank with the tied weight's other place has. A sum of two is the same on both, whoever adds."""
        ends = [self._stages.rank_of(0), self._stages.rank_of(len(self._stages.layers) - 1)]
        other = torch.empty_like(gradient)
        # Between the two only: the ranks between them have no room for it, and a group of two that only some ranks
        # made would leave ranks with unequal numbers of groups, by which torch names the next one.
        if self._first:
            self._axis.send(gradient, ends[1])
            self._axis.receive(other, ends[1])
        else:
            self._axis.receive(other, ends[0])
            self._axis.send(gradient, ends[0])
        return other

    def _measure_one(self, batch: Batch | None, sequences: int) -> Tensor:
        """(2,): summed loss and tokens of a batch, where the loss is known."""
        x = batch.tokens if batch and self._first else torch.empty(0)
        for layers in self._layers:
            stage = layers.stage
            if not stage.first and not self._is_here(stage.number - 1):
                x = self._flow.empty(self._device, sequences)
                self._axis.receive(x, self._stages.rank_of(stage.number - 1))
            x = layers(x)
            if not stage.last and not self._is_here(stage.number + 1):
                self._axis.send(x, self._stages.rank_of(stage.number + 1))
        if not (batch and self._last):
            return torch.zeros(2, dtype=torch.float64, device=self._device)
        tokens = torch.tensor(batch.targets.numel(), device=self._device)
        return torch.stack((self._loss(x, batch.targets).double() * tokens, tokens))

    def _is_here(self, stage: int) -> bool:
        return self._stages.rank_of(stage) == self._axis.rank
