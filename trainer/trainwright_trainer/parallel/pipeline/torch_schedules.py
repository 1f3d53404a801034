"""torch's pipeline schedules, and a stage that reports to the training.

    owns   what ``stages`` gave the rank    moves   activations to the next stage, and their gradients back

torch decides the order in which a rank computes, sends and receives (``torch.distributed.pipelining``). This module
adds reports that training needs and torch does not have: when the gradients of a stage are complete, and how the time
was spent. It also saves memory: torch allocates receive buffers for all micro batches when a step starts; here a buffer
is allocated when it is needed, and freed after its backward pass.

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
from trainwright_trainer.distributed.axis import Axis, detect_lost_ranks
from trainwright_trainer.linear.deferred_weight_gradients import DeferredWeightGradients
from trainwright_trainer.model.key_value_cache import KeyValueCache
from trainwright_trainer.model.transformer import Transformer
from trainwright_trainer.observe.step_timer import StepTimer, Timing
from trainwright_trainer.parallel.pipeline.stages import Stage
from trainwright_trainer.runtime.autocast import autocast


class ActivationSpec(NamedTuple):
    """Shape and dtype of what stages send each other."""

    sequences: int
    """Sequences of a micro batch."""

    positions: int
    """Positions of a sequence."""

    width: int
    precision: PrecisionKind
    tensor_ranks: int = 1
    """Ranks that a sequence is split over."""

    def empty(self, device: torch.device | str) -> Tensor:
        """An uninitialized tensor of this shape, (B, T, D)."""
        shape = (self.sequences, self.positions // self.tensor_ranks, self.width)
        dtype = torch.float32 if self.precision is PrecisionKind.FP32 else torch.bfloat16
        return torch.empty(shape, dtype=dtype, device=device)

    def empty_tokens(self) -> Tensor:
        """The first stage's input, (B, T), on the meta device."""
        return torch.empty((self.sequences, self.positions), dtype=torch.int64, device="meta")


class StageModule(nn.Module):
    """One stage of ``model``: (B, T, D) → (B, T, D), or tokens (B, T) for the first."""

    def __init__(self, model: Transformer, stage: Stage, precision: PrecisionKind) -> None:
        super().__init__()
        self.model = model
        self.stage = stage
        self.precision = precision

    def forward(
        self,
        x: Tensor,
        starts_BT: Tensor | None = None,
        positions: int | None = None,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """Args:
        starts_BT: where the document of each token starts, if documents are masked.
        positions: of each sequence in this pass, if not those of training. Tensor ranks may have a part of them in ``x``.
        """
        model = self.model
        with autocast(self.precision, x.device):
            if self.stage.first:
                x = model.embed(x, starts_BT, cache)
            tables = model.tables(positions or model.positions, x.dtype, starts_BT, cache)
            for layer in self.stage.layers:
                x = model.layers[str(layer)](x, tables)
            return x


class TrainingStage(PipelineStage):
    """A stage that reports when its weights have their gradients."""

    def __init__(
        self,
        layers: StageModule,
        activation: ActivationSpec,
        pipeline: Axis,
        micro_batch_count: int,
        deferred: DeferredWeightGradients | None,
        backward_done: Callable[[], None],
        gradients_ready: Callable[[], None],
    ) -> None:
        """Args:
        micro_batches: of a step.
        deferred: where the layers' backward pass adds weight gradients, if it defers them.
        backward_done: called after each backward pass; weight gradients may still be missing.
        gradients_ready: called when the weights have the gradients of all micro batches.
        """
        self._activation = activation
        self._micro_batch_count, self._done = micro_batch_count, 0
        self._backward_done, self._gradients_ready = backward_done, gradients_ready
        stream = activation.empty("meta").requires_grad_()
        super().__init__(
            layers,
            layers.stage.number,
            layers.stage.count,
            pipeline.device,
            input_args=activation.empty_tokens() if layers.stage.first else stream,
            output_args=stream,
            group=pipeline.group,
            dw_builder=deferred.take if deferred else None,
        )
        self.args_recv_info = _LazyBuffers()
        self.grad_recv_info = _LazyBuffers()

    def begin_step(self, timer: StepTimer) -> None:
        """Start a step."""
        self._timer = timer
        self._done = 0

    def get_fwd_recv_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        if not self.is_first:
            _allocate_buffer(
                self.args_recv_info[fwd_chunk_id], self._activation.empty(self.device).requires_grad_()
            )
        return super().get_fwd_recv_ops(fwd_chunk_id)

    def get_bwd_recv_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        if not self.is_last:
            _allocate_buffer(self.grad_recv_info[bwd_chunk_id], self._activation.empty(self.device))
        return super().get_bwd_recv_ops(bwd_chunk_id)

    def _get_init_p2p_neighbors_ops(self) -> list[dist.P2POp]:
        """Up to torch 2.11, neighbours first exchange a message, and a rank with two neighbours also sends one to
        itself, which gloo cannot do.
        """
        own = dist.get_rank()
        return [each for each in super()._get_init_p2p_neighbors_ops() if each.peer != own]

    def forward_one_chunk(self, *args: Any, **kwargs: Any) -> Any:
        self._timer.mark(Timing.COLLECTIVES)
        out = super().forward_one_chunk(*args, **kwargs)
        self._timer.mark(Timing.FORWARD)
        return out

    def backward_one_chunk(
        self,
        bwd_chunk_id: int,
        loss: Tensor | None = None,
        full_backward: bool = True,
        last_backward: bool = False,
    ) -> None:
        self._timer.mark(Timing.COLLECTIVES)
        super().backward_one_chunk(bwd_chunk_id, loss, full_backward, last_backward)
        _release_buffer(self.args_recv_info[bwd_chunk_id])
        _release_buffer(self.grad_recv_info[bwd_chunk_id])
        self._backward_done()
        self._timer.mark(Timing.BACKWARD)
        if full_backward:
            self._count_micro_batch()

    def backward_weight_one_chunk(self, bwd_chunk_id: int, last_backward: bool = False) -> None:
        self._timer.mark(Timing.COLLECTIVES)
        super().backward_weight_one_chunk(bwd_chunk_id, last_backward)
        self._timer.mark(Timing.BACKWARD)
        self._count_micro_batch()

    def _count_micro_batch(self) -> None:
        """Count a micro batch whose weight gradients are complete."""
        self._done += 1
        if self._done == self._micro_batch_count:
            self._gradients_ready()


class Schedule:
    """The work of a step, in the order of one of torch's schedules."""

    def __init__(
        self,
        kind: PipelineSchedule,
        stages: Sequence[TrainingStage],
        micro_batch_count: int,
        loss: Callable[..., Tensor],
    ) -> None:
        """``loss`` takes the last stage's output and the targets; its results are summed and differentiated."""
        self._stages = stages
        self._schedule: Any = _SCHEDULES[kind](
            stages[0] if kind is PipelineSchedule.ONE_F_ONE_B else list(stages),
            micro_batch_count,
            loss_fn=loss,
            scale_grads=False,
        )

    def step(
        self, tokens: Tensor | None, targets: Tensor | None, starts: Tensor | None, timer: StepTimer
    ) -> list[Tensor]:
        """Run all passes; returns the losses of the micro batches on the rank with the last stage.

        Args:
            tokens: of all micro batches, (micro batches · B, T), for the first stage.
            targets: of all micro batches, for the last stage.
            starts: where the document of each token starts, for all stages; None if documents are not masked.
        """
        for stage in self._stages:
            stage.begin_step(timer)
        losses: list[Tensor] = []
        given = () if tokens is None else (tokens,)
        masked = {} if starts is None else {"starts_BT": starts}
        with detect_lost_ranks(), unwrap_stage_errors():
            self._schedule.step(*given, target=targets, losses=losses, return_outputs=False, **masked)
        return [loss.detach() for loss in losses]


_SCHEDULES: dict[PipelineSchedule, Callable[..., Any]] = {
    PipelineSchedule.ONE_F_ONE_B: Schedule1F1B,
    PipelineSchedule.INTERLEAVED: ScheduleInterleaved1F1B,
    PipelineSchedule.INTERLEAVED_ZERO_BUBBLE: ScheduleInterleavedZeroBubble,
    PipelineSchedule.ZBV: ScheduleZBVZeroBubble,
}


class _LazyBuffers(dict[int, tuple[Any, ...]]):
    """Receive buffers by micro batch; those that torch allocates in advance are freed."""

    def __setitem__(self, chunk: int, infos: tuple[Any, ...]) -> None:
        super().__setitem__(chunk, infos)
        _release_buffer(infos)


def _allocate_buffer(infos: tuple[Any, ...], buffer: Tensor) -> None:
    (info,) = infos
    info.buffer = buffer


def _release_buffer(infos: tuple[Any, ...]) -> None:
    for info in infos:
        if getattr(info, "buffer", None) is not None:  # tokens have no buffer
            info.buffer = info.buffer.new_empty(0)


@contextmanager
def unwrap_stage_errors() -> Iterator[None]:
    """Raise the original exception of a stage, which torch wraps into a less specific one."""
    try:
        yield
    except RuntimeError as error:
        if type(error) is RuntimeError and isinstance(error.__cause__, Exception):
            raise error.__cause__ from None
        raise
