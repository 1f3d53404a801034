"""torch's pipeline schedules, and a stage as they run it.

    owns   what ``stages`` gave the rank    moves   results of a stage to the next one, and their gradients back

In which order a rank works, sends and receives is torch's affair (``torch.distributed.pipelining``). What is added here
is what a training needs to know of it and torch does not tell: when the gradients of a stage are complete, and where the
time went. And memory: torch makes room for everything that is received in a step at its start; here room is made
when something is received, and let go after its backward pass.

    B sequences of a micro batch   T position   D width
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
from trainwright_trainer.deferred import Deferred
from trainwright_trainer.mesh import Axis, naming_lost_ranks
from trainwright_trainer.model.transformer import Transformer
from trainwright_trainer.observe.throughput import Phase, StepClock
from trainwright_trainer.parallel.pipeline.stages import Stage
from trainwright_trainer.passes import autocast


class Flow(NamedTuple):
    """What goes from stage to stage."""

    sequences: int
    """Of a micro batch."""

    positions: int
    """Of a sequence."""

    width: int
    precision: PrecisionKind
    parts: int = 1
    """Ranks that a sequence is cut over."""

    def empty(self, device: torch.device | str, sequences: int | None = None) -> Tensor:
        """Room for it, (B, T, D)."""
        shape = (sequences or self.sequences, self.positions // self.parts, self.width)
        dtype = torch.float32 if self.precision is PrecisionKind.FP32 else torch.bfloat16
        return torch.empty(shape, dtype=dtype, device=device)

    def empty_tokens(self) -> Tensor:
        """What goes into the first stage, (B, T), without memory."""
        return torch.empty((self.sequences, self.positions), dtype=torch.int64, device="meta")


class StageModule(nn.Module):
    """One stage of ``model``: (B, T, D) → (B, T, D), or tokens (B, T) where it is the first."""

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
            return x


class RunningStage(PipelineStage):
    """A stage that knows when its weights have their gradients."""

    def __init__(
        self,
        layers: StageModule,
        flow: Flow,
        pipeline: Axis,
        rounds: int,
        deferred: Deferred | None,
        ended: Callable[[], None],
        complete: Callable[[], None],
    ) -> None:
        """
        Args:
            rounds: micro batches of a step.
            deferred: where the backward pass of the layers leaves weight gradients, if it does.
            ended: called after each backward pass, weight gradients perhaps still missing.
            complete: called when the weights have the gradients of all rounds.
        """
        self._flow = flow
        self._rounds, self._done = rounds, 0
        self._ended, self._complete = ended, complete
        stream = flow.empty("meta").requires_grad_()
        super().__init__(
            layers,
            layers.stage.number,
            layers.stage.count,
            pipeline.device,
            input_args=flow.empty_tokens() if layers.stage.first else stream,
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

    def _get_init_p2p_neighbors_ops(self) -> list[dist.P2POp]:
        """Up to torch 2.11 neighbours greet each other first, a rank with two of them also itself, which gloo cannot."""
        own = dist.get_rank()
        return [each for each in super()._get_init_p2p_neighbors_ops() if each.peer != own]

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
        self._ended()
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
            self._complete()


class Schedule:
    """The work of a step, in the order of one of torch's schedules."""

    def __init__(
        self, kind: PipelineSchedule, stages: Sequence[RunningStage], rounds: int, loss: Callable[..., Tensor]
    ) -> None:
        """``loss`` takes what leaves the last stage and the targets; gradients are of the sum of what it returns."""
        self._stages = stages
        self._schedule: Any = _SCHEDULES[kind](
            stages[0] if kind is PipelineSchedule.ONE_F_ONE_B else list(stages),
            rounds,
            loss_fn=loss,
            scale_grads=False,
        )

    def step(self, tokens: Tensor | None, targets: Tensor | None, clock: StepClock) -> list[Tensor]:
        """Make all passes; returns the losses of the micro batches where the last stage is.

        Args:
            tokens: of all micro batches, (rounds·B, T), for the first stage.
            targets: of all micro batches, for the last stage.
        """
        for stage in self._stages:
            stage.begin(clock)
        losses: list[Tensor] = []
        given = () if tokens is None else (tokens,)
        with naming_lost_ranks(), as_raised():
            self._schedule.step(*given, target=targets, losses=losses, return_outputs=False)
        return [loss.detach() for loss in losses]


_SCHEDULES: dict[PipelineSchedule, Callable[..., Any]] = {
    PipelineSchedule.ONE_F_ONE_B: Schedule1F1B,
    PipelineSchedule.INTERLEAVED: ScheduleInterleaved1F1B,
    PipelineSchedule.INTERLEAVED_ZERO_BUBBLE: ScheduleInterleavedZeroBubble,
    PipelineSchedule.ZBV: ScheduleZBVZeroBubble,
}


class _WithoutRoom(dict[int, tuple[Any, ...]]):
    """What a stage receives, by micro batch; the room that torch makes for it at the start is let go."""

    def __setitem__(self, chunk: int, infos: tuple[Any, ...]) -> None:
        super().__setitem__(chunk, infos)
        _leave_room(infos)


def _make_room(infos: tuple[Any, ...], room: Tensor) -> None:
    (info,) = infos
    info.buffer = room


def _leave_room(infos: tuple[Any, ...]) -> None:
    for info in infos:
        if getattr(info, "buffer", None) is not None:  # tokens have none
            info.buffer = info.buffer.new_empty(0)


@contextmanager
def as_raised() -> Iterator[None]:
    """torch wraps what a stage raises into an error that says less; let out what was raised."""
    try:
        yield
    except RuntimeError as error:
        if type(error) is RuntimeError and isinstance(error.__cause__, Exception):
            raise error.__cause__ from None
        raise
