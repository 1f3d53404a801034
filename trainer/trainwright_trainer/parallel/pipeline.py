"""Pipeline parallelism: micro batches flow through stages of layers that lie on different ranks.

    owns   each rank whole layers, in one stage or several (``parallel.stage_cut``)
    moves  per micro batch and boundary, the residual stream (B, T, D) forwards and its gradient backwards

In which order a rank works is torch's affair: ``torch.distributed.pipelining`` has the schedules, and sends and receives. This
file gives it stages, and takes part where a training needs more than that:

    gradients    complete when the schedule has done a stage's last backward pass, or last half of one, and are
                 sent from there, stage by stage. Autograd's hooks are not listened to: under zero-bubble schedules
                 weights get their gradients without them (``parallel.deferred``)
    data         only ranks with the first or the last stage ask for micro batches
    memory       what was received is kept until its backward pass; torch itself keeps room for all micro batches
    tied weights the first stage's embedding and the last one's head are copies that must move alike: their gradients are
                 added up over the two ranks before data ranks add up theirs

Validation only goes forward, one batch after the other, of any size.

    B sequences of a micro batch   T position   D width
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleZBVZeroBubble,
)

from trainwright.contracts.parallelism_spec import PipelineSchedule
from trainwright.contracts.precision_spec import PrecisionKind
from trainwright_trainer.data.loader import Batch
from trainwright_trainer.mesh import Axis, Mesh, naming_lost_ranks
from trainwright_trainer.model.loss import HeadLoss
from trainwright_trainer.model.transformer import Transformer
from trainwright_trainer.observe.throughput import Phase, StepClock
from trainwright_trainer.parallel.deferred import Deferred
from trainwright_trainer.parallel.deferred_linear import defer_weight_gradients
from trainwright_trainer.parallel.parts import Parts
from trainwright_trainer.parallel.stage_cut import EMBEDDING, Stage, Stages, tied
from trainwright_trainer.passes import autocast
from trainwright_trainer.updater import Updater

_SCHEDULES: dict[PipelineSchedule, Callable[..., Any]] = {
    PipelineSchedule.INTERLEAVED: ScheduleInterleaved1F1B,
    PipelineSchedule.INTERLEAVED_ZERO_BUBBLE: ScheduleInterleavedZeroBubble,
    PipelineSchedule.ZBV: ScheduleZBVZeroBubble,
}


class Flow(NamedTuple):
    """What goes from stage to stage."""

    sequences: int
    """Of a micro batch."""

    positions: int
    """Of each sequence, on this rank."""

    width: int
    precision: PrecisionKind

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32 if self.precision is PrecisionKind.FP32 else torch.bfloat16

    def empty(self, device: torch.device | str, sequences: int | None = None) -> Tensor:
        """Room for it, (B, T, D)."""
        shape = (sequences or self.sequences, self.positions, self.width)
        return torch.empty(shape, dtype=self.dtype, device=device)


class Pipeline:
    """``Passes`` of the rank that holds some of the stages."""

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
        self._model = model
        self._updater = updater
        self._device = mesh.device
        self._axis = mesh.pipeline
        self._stages = stages
        self._held = stages.of(mesh.pipeline.rank)
        self._first, self._last = self._held[0].first, self._held[-1].last
        self._flow = flow
        self._parts_of_loss = rounds * mesh.data.ranks
        self._head_loss = head_loss
        self._tied = EMBEDDING in parts.held and tied(parts)
        self._copies = _copies(mesh.pipeline, stages) if self._tied else None
        self._modules = [_Layers(model, stage, flow.precision) for stage in self._held]
        deferred = Deferred() if stages.schedule.is_zero_bubble else None
        if deferred is not None:
            defer_weight_gradients(model, deferred)
        self._running = [
            _Running(module, flow, mesh.pipeline, updater, module.stage.names(parts), rounds, deferred)
            for module in self._modules
        ]
        self._clock = StepClock(mesh.device)
        self._schedule = _schedule(stages.schedule, self._running, rounds, self._loss_in_step)

    def learn(self, micro_batches: Iterable[Batch], clock: StepClock) -> Tensor:
        tokens, targets = self._read(micro_batches)
        clock.mark(Phase.DATA)
        self._clock = clock
        for stage in self._running:
            stage.begin(clock)
        losses: list[Tensor] = []
        with naming_lost_ranks(), _as_raised():
            self._schedule.step(*tokens, target=targets, losses=losses, return_outputs=False)
        self._complete_tied()
        total = torch.zeros((), device=self._device)
        for loss in losses:
            total += loss.detach()
        return total

    def measure(self, batches: Iterable[Batch]) -> Tensor:
        total = torch.zeros(2, dtype=torch.float64, device=self._device)
        mine = iter(batches if self._first or self._last else ())
        while True:
            batch = next(mine, None)
            size = torch.tensor(0 if batch is None else len(batch.sequences), device=self._device)
            self._axis.broadcast(size, source=0)  # the first stage knows whether there is one more
            if not size:
                return total
            total += self._measure_one(batch.to(self._device) if batch else None, int(size))

    def _read(self, micro_batches: Iterable[Batch]) -> tuple[tuple[Tensor, ...], Tensor | None]:
        """The step's tokens for the first stage, and targets for the last one; nothing is asked for without either."""
        if not (self._first or self._last):
            return (), None
        batches = [batch.to(self._device) for batch in micro_batches]
        tokens = (torch.cat([batch.tokens for batch in batches]),) if self._first else ()
        return tokens, torch.cat([batch.targets for batch in batches]) if self._last else None

    def _loss_in_step(self, features_BTD: Tensor, targets_BT: Tensor) -> Tensor:
        self._clock.mark(Phase.COLLECTIVES)
        loss = self._loss(features_BTD, targets_BT) / self._parts_of_loss
        self._clock.mark(Phase.FORWARD)
        return loss

    def _loss(self, features_BTD: Tensor, targets_BT: Tensor) -> Tensor:
        with autocast(self._flow.precision, self._device):
            return self._head_loss(features_BTD, self._model.head.weight, targets_BT)

    def _complete_tied(self) -> None:
        """The gradients of both places of a tied weight are there when the whole schedule is done."""
        if not self._tied:
            return
        if self._copies is not None:
            (weight,) = self._model.embedding.parameters()
            assert weight.grad is not None
            self._copies.sum(weight.grad)
        self._updater.complete([EMBEDDING])

    def _measure_one(self, batch: Batch | None, sequences: int) -> Tensor:
        """(2,): summed loss and tokens of a batch, where the loss is known."""
        x = batch.tokens if batch and self._first else torch.empty(0)
        for module in self._modules:
            stage = module.stage
            if not stage.first and self._rank_of(stage.number - 1) != self._axis.rank:
                x = self._flow.empty(self._device, sequences)
                self._axis.receive(x, self._rank_of(stage.number - 1))
            x = module(x)
            if not stage.last and self._rank_of(stage.number + 1) != self._axis.rank:
                self._axis.send(x, self._rank_of(stage.number + 1))
        if not (batch and self._last):
            return torch.zeros(2, dtype=torch.float64, device=self._device)
        tokens = torch.tensor(batch.targets.numel(), device=self._device)
        return torch.stack((self._loss(x, batch.targets).double() * tokens, tokens))

    def _rank_of(self, stage: int) -> int:
        return self._stages.rank_of(stage)


class _Layers(nn.Module):
    """One stage of ``model``: tokens (B, T) or (B, T, D) → (B, T, D), normed by the last stage."""

    def __init__(self, model: Transformer, stage: Stage, precision: PrecisionKind) -> None:
        super().__init__()
        self.model = model
        self.stage = stage
        self.precision = precision

    def forward(self, x: Tensor) -> Tensor:
        model = self.model
        with autocast(self.precision, x.device):
            if self.stage.first:
                x = model.embedding(x)
            for layer in self.stage.layers:
                x = model.layers[str(layer)](x, model.cosines, model.sines)
            return model.norm(x) if self.stage.last else x


class _Running(PipelineStage):
    """A stage as torch's schedules use it."""

    def __init__(
        self,
        layers: _Layers,
        flow: Flow,
        pipeline: Axis,
        updater: Updater,
        names: list[str],
        rounds: int,
        deferred: Deferred | None,
    ) -> None:
        """``names`` are the weights whose gradients are complete after ``rounds`` backward passes."""
        self._flow = flow
        self._updater = updater
        self._names = names
        self._rounds = rounds
        self._done = 0
        stream = flow.empty("meta").requires_grad_()
        tokens = torch.empty((flow.sequences, flow.positions), dtype=torch.int64, device="meta")
        super().__init__(
            layers,
            layers.stage.number,
            layers.stage.count,
            pipeline.device,
            input_args=tokens if layers.stage.first else stream,
            output_args=stream,
            group=pipeline.group,
            dw_builder=deferred.take if deferred else None,
        )
        self.args_recv_info = _WithoutRoom()
        self.grad_recv_info = _WithoutRoom()

    def begin(self, clock: StepClock) -> None:
        """A step begins."""
        self._clock = clock
        self._done = 0

    def get_fwd_recv_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        if not self.is_first:
            _make_room(self.args_recv_info[fwd_chunk_id], self._flow.empty(self.device).requires_grad_())
        return super().get_fwd_recv_ops(fwd_chunk_id)

    def get_bwd_recv_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        if not self.is_last:
            _make_room(self.grad_recv_info[bwd_chunk_id], self._flow.empty(self.device))
        return super().get_bwd_recv_ops(bwd_chunk_id)

    def forward_one_chunk(self, *args: Any, **kwargs: Any) -> Any:
        self._clock.mark(Phase.COLLECTIVES)
        out = super().forward_one_chunk(*args, **kwargs)
        self._clock.mark(Phase.FORWARD)
        return out

    def backward_one_chunk(
        self,
        bwd_chunk_id: int,
        loss: Tensor | None = None,
        full_backward: bool = True,
        last_backward: bool = False,
    ) -> None:
        self._clock.mark(Phase.COLLECTIVES)
        super().backward_one_chunk(bwd_chunk_id, loss, full_backward, last_backward)
        _leave_room(self.args_recv_info[bwd_chunk_id])
        _leave_room(self.grad_recv_info[bwd_chunk_id])
        self._updater.end_round()
        self._clock.mark(Phase.BACKWARD)
        if full_backward:
            self._has_weight_gradients()

    def backward_weight_one_chunk(self, bwd_chunk_id: int, last_backward: bool = False) -> None:
        self._clock.mark(Phase.COLLECTIVES)
        super().backward_weight_one_chunk(bwd_chunk_id, last_backward)
        self._clock.mark(Phase.BACKWARD)
        self._has_weight_gradients()

    def _has_weight_gradients(self) -> None:
        """Of one more micro batch."""
        self._done += 1
        if self._done == self._rounds:
            self._updater.complete(self._names)


class _WithoutRoom(dict[int, tuple[Any, ...]]):
    """What a stage receives, by micro batch. torch makes room for all of them at the start; this lets it go."""

    def __setitem__(self, chunk: int, infos: tuple[Any, ...]) -> None:
        super().__setitem__(chunk, infos)
        _leave_room(infos)


def _make_room(infos: tuple[Any, ...], room: Tensor) -> None:
    (info,) = infos
    info.buffer = room


def _leave_room(infos: tuple[Any, ...]) -> None:
    for info in infos:
        if isinstance(info.buffer, Tensor):
            info.buffer = info.buffer.new_empty(0)


def _schedule(
    kind: PipelineSchedule, stages: list[_Running], rounds: int, loss: Callable[..., Tensor]
) -> Any:
    """Losses are scaled already, so gradients are not."""
    if kind is PipelineSchedule.ONE_F_ONE_B:
        (stage,) = stages
        return Schedule1F1B(stage, rounds, loss_fn=loss, scale_grads=False)
    return _SCHEDULES[kind](stages, rounds, loss_fn=loss, scale_grads=False)


def _copies(pipeline: Axis, stages: Stages) -> Axis | None:
    """The ranks with the first and the last stage, of which this is one; None where one rank has both."""
    ends = [0, stages.rank_of(len(stages.layers) - 1)]
    if ends[0] == ends[1]:
        return None
    if pipeline.ranks == 2:
        return pipeline
    return Axis(tuple(pipeline.members[end] for end in ends), ends.index(pipeline.rank), pipeline.device)


@contextmanager
def _as_raised() -> Iterator[None]:
    """torch wraps what a stage raises into an error of its own kind; let out what was raised."""
    try:
        yield
    except RuntimeError as error:
        if type(error) is RuntimeError and isinstance(error.__cause__, Exception):
            raise error.__cause__ from None
        raise
