"""The updater interface: it holds the weights, takes their gradients and updates them. Engines only compute gradients.

One updater holds the weights in float32 and uses an ``Optimizer`` (``optim.replicated_updater``); another holds them,
their gradients and moments in 8 and 16 bits (``fp8.state.updater``). Each has its own state to checkpoint.

    begin_step   (backward, end_micro_batch)*   begin_last_micro_batch, backward   wait_for_gradients   grad_norm
    update, or non_finite_tensor and skip

A pipeline whose schedule computes weight gradients outside the backward pass does not call
``begin_last_micro_batch``, because autograd's hooks do not run for them; it calls ``mark_ready``, stage by
stage.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from trainwright_trainer.distributed.axis import Axis
from trainwright_trainer.distributed.shard_spec import Slice, full_slice

OBSERVED_EVERY_STEPS = 10
"""Steps between metrics that wait for the device."""


def observes(step: int) -> bool:
    """Whether a step's metrics include those that wait for the device."""
    return step == 1 or step % OBSERVED_EVERY_STEPS == 0


@dataclass(frozen=True)
class StateTensor:
    """A tensor of the state under its canonical name, as stored, or the slice of it that this rank writes."""

    name: str
    tensor: Tensor
    scale: str | None = None
    """Name of the tensor of scales; values times scales are the real numbers
    (``contracts.checkpoint.TensorEntry``)."""

    part: Slice | None = None
    """Its slice of the entire tensor; None if it is the entire tensor."""

    @property
    def box(self) -> Slice:
        return self.part or full_slice(self.tensor.shape)


class ReadTensor(Protocol):
    """Reads slices of a checkpoint's tensors, on the CPU, by canonical name.

    Raises:
        CheckpointInvalidError: the tensor is missing or has another shape.
    """

    def __call__(self, name: str, box: Slice) -> Tensor:
        """The slice as stored."""

    def into(self, target: Tensor, name: str, box: Slice, alike: Axis | None = None) -> None:
        """Fill ``target`` with the slice as stored.

        Args:
            target: of the slice's shape and number format.
            name: of the tensor.
            box: the slice.
            alike: ranks that have the slice alike and all call this for it, in the same order. The first of them reads
                it and sends it to the others, and its errors are raised on all of them. None if only this rank needs
                the slice.
        """

    def dequantized(self, name: str, box: Slice) -> Tensor:
        """The slice's real numbers, in float32."""

    def is_stored_slice(self, name: str, box: Slice) -> bool:
        """Whether this slice was written as one, so that its blocks of 128, each with a scale, are those of
        the file.
        """


class Updater(Protocol):
    """Owns weights, gradients and optimizer; all ranks make the same calls."""

    def begin_step(self, learning_rate: float) -> None:
        """Start a step: clear the gradients of the previous one."""

    def end_micro_batch(self) -> None:
        """A backward pass, of the entire model or of one pipeline stage, has ended. Optional after the step's
        last one.
        """

    def begin_last_micro_batch(self) -> None:
        """The next backward pass is the step's last: gradients may be sent as autograd completes them."""

    def mark_ready(self, names: Collection[str]) -> None:
        """These weights have their complete gradients, whether or not autograd's hooks have run."""

    def wait_for_gradients(self) -> None:
        """Return when the gradients are summed over all ranks."""

    def grad_norm(self) -> Tensor:
        """Global L2 norm of the gradients, a scalar, equal on all ranks; not finite if any gradient is not."""

    def update(self, norm: Tensor) -> None:
        """Clip by ``norm`` and update the weights."""

    def skip(self) -> None:
        """Skip the update: the gradients are not used, and what the step observed is dropped.

        With the optimizer in the backward pass, the gradients have already been used.
        """

    def non_finite_tensor(self) -> str | None:
        """The first tensor, in the order of computation, with a value that is not finite; None if unknown.

        All ranks call this after ``grad_norm`` and before ``skip``. It returns ``<weight>:gradient`` or the like;
        see ``contracts.series.FAMILIES``.
        """

    def metrics(self, step: int) -> dict[str, float]:
        """Series values of the last step, over all ranks; every rank must call this.

        Not called after a skipped step.
        """

    def state(self) -> list[StateTensor]:
        """The tensors, or slices of tensors, that this rank writes to a checkpoint; all ranks together write
        each element once.
        """

    def scalars(self) -> dict[str, Any]:
        """Scalars that a resumed run needs, equal on all ranks."""

    def restore(self, read: ReadTensor, scalars: dict[str, Any]) -> None:
        """Load the state from a checkpoint written by any number of ranks."""
