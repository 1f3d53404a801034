"""The updater: what becomes of the gradients of a step. The engine computes them, and knows no more of them.

One updater holds the weights in float32 and lets torch's AdamW move them (``optim.replicated``); another holds them,
their gradients and moments in 8 and 16 bits (``fp8.updater``). Each keeps the state that a checkpoint needs.

    begin   (backward, end_round)* last_round, backward   finish   grad_norm   update, or not_finite and skip

A pipeline whose schedule computes weight gradients by itself calls no ``last_round``, for autograd's hooks then tell nothing
of use; it says ``complete``, stage by stage.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from trainwright_trainer.parts import Slice, whole


@dataclass(frozen=True)
class StateTensor:
    """A tensor of the state under its canonical name, as stored, or the part of it that a rank answers for."""

    name: str
    tensor: Tensor
    scale: str | None = None
    """Name of the tensor whose values times these are the real ones; see ``contracts.checkpoint.TensorEntry``."""

    part: Slice | None = None
    """Where it lies in the whole tensor; None where it is the whole."""

    @property
    def box(self) -> Slice:
        return self.part or whole(self.tensor.shape)


class ReadTensor(Protocol):
    """Reads boxes of a checkpoint's tensors, on the CPU, by canonical name.

    Raises:
        CheckpointInvalidError: it is missing or of another shape.
    """

    def __call__(self, name: str, box: Slice) -> Tensor:
        """As it was stored."""

    def real(self, name: str, box: Slice) -> Tensor:
        """Float32 numbers that the stored ones stand for."""

    def is_piece(self, name: str, box: Slice) -> bool:
        """Whether this very box was written as one, so that its blocks of 128 with a scale each are those of the file."""


class Updater(Protocol):
    """Holds weights, gradients and optimizer; every call is made by all ranks alike."""

    def begin(self, learning_rate: float) -> None:
        """A step begins: forget the gradients of the one before."""

    def end_round(self) -> None:
        """A backward pass, of the whole model or of one stage of a pipeline, has ended. The step's last may come without."""

    def last_round(self) -> None:
        """The next backward pass is the step's last: gradients may be sent as autograd completes them."""

    def complete(self, names: Collection[str]) -> None:
        """The gradients of these weights are complete, whether or not autograd's hooks have told so."""

    def finish(self) -> None:
        """Return when the gradients of all ranks are added up."""

    def grad_norm(self) -> Tensor:
        """Global L2 norm of the gradients, a scalar, equal on all ranks; not finite if any gradient is not."""

    def update(self, norm: Tensor) -> None:
        """Clip by ``norm`` and move the weights."""

    def skip(self) -> None:
        """Do without an update: the gradients are not used, and what the step observed is dropped.

        An updater that releases gradients has used them already, in the backward pass.
        """

    def not_finite(self) -> str | None:
        """The first tensor, in the order of computing, that held a number that is not finite; None where unknown.

        Asked between ``grad_norm`` and ``skip``, by all ranks. It reads ``<weight>:gradient`` or the like; see
        ``contracts.events.LAYER_SERIES``.
        """

    def numbers(self, step: int) -> dict[str, float]:
        """Series values of the step that has just been made, over all ranks; every rank must ask.

        Not asked after a skipped step.
        """

    def state(self) -> list[StateTensor]:
        """The tensors, or parts of tensors, that this rank writes to a checkpoint; over all ranks each element once."""

    def position(self) -> dict[str, Any]:
        """Scalars that resuming needs, equal on all ranks."""

    def restore(self, read: ReadTensor, position: dict[str, Any]) -> None:
        """Take the state from a checkpoint, written by any number of ranks."""
