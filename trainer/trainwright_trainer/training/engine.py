"""The engine: one optimizer step over all ranks. The rest of the training is elsewhere.

Another engine can be plugged in behind this interface. An engine owns the passes, the loss and the finite check.
``ForwardBackward`` decides the order of forward and backward passes, and the updater decides what happens with the
gradients. The engine depends on neither files nor schedules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from trainwright_trainer.data.loader import Batch
from trainwright_trainer.distributed.axis import detect_lost_ranks
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.model.key_value_cache import KeyValueCache
from trainwright_trainer.model.transformer import Transformer
from trainwright_trainer.observe.step_timer import StepTimer, Timing
from trainwright_trainer.optim.updater import Updater
from trainwright_trainer.training.forward_backward import ForwardBackward


class StepMetrics(NamedTuple):
    """What one step measured, equal on all ranks."""

    loss: float
    """Mean over the global batch, nats per token."""

    grad_norm: float
    """Before clipping."""

    non_finite_tensor: str | None = None
    """The first tensor with a value that is not finite, if the step made no update and it is known."""

    repeated: bool = False
    """The step was computed a second time because the first result was not finite."""

    stopping: bool = False
    """A stop was requested and all ranks know: this is the last step of the attempt."""

    @property
    def finite(self) -> bool:
        """Whether an update was made."""
        return math.isfinite(self.loss) and math.isfinite(self.grad_norm)

    @property
    def problem(self) -> str:
        """What was wrong with a step that is not finite."""
        first = (
            f"; the first tensor that was not finite: {self.non_finite_tensor}"
            if self.non_finite_tensor
            else ""
        )
        twice = ", also when computed again" if self.repeated else ""
        return f"the loss was {self.loss:.6g} and the gradient norm {self.grad_norm:.6g}{twice}{first}"

    @property
    def cause(self) -> str:
        """`problem` in a few words: the value that was not finite, and where it appeared first."""
        first = f", first in {self.non_finite_tensor}" if self.non_finite_tensor else ""
        if math.isfinite(self.loss):
            return f"the gradient norm was {self.grad_norm}{first}"
        return f"the loss was {self.loss}{first}"


ShouldStop = Callable[[], bool]
"""Whether a stop was requested; called once per step, after its passes."""


def never_stop() -> bool:
    return False


def with_stop_flag(loss: Tensor, should_stop: ShouldStop) -> Tensor:
    """(2,): this rank's loss, and 1 if ``should_stop()``; ``to_step_metrics`` takes the sums over the ranks."""
    return torch.stack((loss, torch.ones_like(loss) if should_stop() else torch.zeros_like(loss)))


def to_step_metrics(sums: Tensor, norm: Tensor) -> StepMetrics:
    """The metrics of all ranks, read from the device at once."""
    loss, asking, norm_of_all = torch.cat((sums, norm.reshape(1))).tolist()
    return StepMetrics(loss, norm_of_all, stopping=asking > 0)


class Engine(Protocol):
    """The interface that the training loop needs."""

    model: Transformer
    updater: Updater

    def step(
        self,
        micro_batches: Iterable[Batch],
        learning_rate: float,
        timer: StepTimer,
        should_stop: ShouldStop = never_stop,
    ) -> StepMetrics:
        """Update the weights once, or leave them and the optimizer untouched if loss or norm is not finite.

        After a result that is not finite, the caller either calls this again for the same step, which then computes
        what a first call would, or calls ``updater.skip``. With the optimizer in the backward pass, some or all weights
        are updated before that is known: such a step is the last one, and its weights must not be used. If
        ``should_stop`` is true on any rank, all ranks stop; the flag is sent with the step's sums.
        """

    def mean_loss(self, batches: Iterable[Batch]) -> float:
        """Loss over the batches of all ranks, without gradients."""

    def next_logits(self, tokens_BT: Tensor, at_B: Tensor, cache: KeyValueCache) -> Tensor | None:
        """Logits (B, V) of the tokens after ``tokens_BT[:, at_B]``; None on ranks that have none.

        All ranks call it with the same tokens, on their devices. It does not change the training.
        """


class TorchEngine:
    """PyTorch's autograd: ``forward_backward`` runs the passes, and ``updater`` takes the gradients."""

    def __init__(
        self, model: Transformer, updater: Updater, mesh: Mesh, forward_backward: ForwardBackward
    ) -> None:
        self.model = model
        self.updater = updater
        self._mesh = mesh
        self.forward_backward = forward_backward

    def step(
        self,
        micro_batches: Iterable[Batch],
        learning_rate: float,
        timer: StepTimer,
        should_stop: ShouldStop = never_stop,
    ) -> StepMetrics:
        self.updater.begin_step(learning_rate)
        with detect_lost_ranks():
            loss = self.forward_backward.compute_gradients(micro_batches, timer)
        self.updater.wait_for_gradients()
        sums = self._sum_identical(with_stop_flag(loss, should_stop))
        timer.mark(Timing.COLLECTIVES)
        norm = self.updater.grad_norm()
        # Loss and norm are sums over all ranks here, so every rank has the same numbers and makes the same decision.
        metrics = to_step_metrics(sums, norm)
        if metrics.finite:
            self.updater.update(norm)
        else:
            metrics = metrics._replace(non_finite_tensor=self.updater.non_finite_tensor())
        timer.mark(Timing.OPTIMIZER)
        return metrics

    def mean_loss(self, batches: Iterable[Batch]) -> float:
        self.model.eval()  # what FP8 layers see here belongs to no step
        with torch.no_grad(), detect_lost_ranks():
            total = self.forward_backward.sum_losses(batches)
        self.model.train()
        summed, tokens = self._sum_over_ranks(total).tolist()
        return float(summed / tokens)

    def next_logits(self, tokens_BT: Tensor, at_B: Tensor, cache: KeyValueCache) -> Tensor | None:
        self.model.eval()
        with torch.no_grad(), detect_lost_ranks():
            logits_BV = self.forward_backward.next_logits(tokens_BT, at_B, cache)
        self.model.train()
        return logits_BV

    def _sum_identical(self, sums: Tensor) -> Tensor:
        """Like ``_sum_over_ranks``, with the same bits on every rank. The ranks of a tensor axis have computed the same
        loss: their mean is used, so that a rank with a different loss is detected."""
        if self._mesh.tensor.ranks == 1:
            return self._sum_over_ranks(sums)
        return self._mesh.world.all_reduce(sums / self._mesh.tensor.ranks)

    def _sum_over_ranks(self, number: Tensor) -> Tensor:
        """Sum, in place, over data and pipeline ranks. In a pipeline, ranks without the loss contribute zeros."""
        return self._mesh.pipeline.all_reduce(self._mesh.data.all_reduce(number))
