"""Reading on one rank what several ranks need: it reads a tensor of a checkpoint and sends it to the others.

Tensors are sent one after the other, from and into their own memory: no rank has more than one of them twice. Before each, the
ranks learn whether it could be read. If not, all of them raise the same error, and none waits for a rank that has failed.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from trainwright_trainer.distributed.axis import Axis
from trainwright_trainer.runtime.errors import CheckpointInvalidError

_SENT_ERRORS: tuple[type[Exception], ...] = (CheckpointInvalidError, MemoryError, OSError)
"""What reading can raise. Ranks send the index of the class with the message."""


def fill(target: Tensor, stored: Tensor) -> None:
    """Copy ``stored`` bit by bit; both have the same shape and number format."""
    assert (stored.shape, stored.dtype) == (target.shape, target.dtype)
    target = target.detach()
    if target.is_contiguous():
        _bytes_of(target).copy_(_bytes_of(stored))
    else:
        target.copy_(stored)


def fill_on_all(target: Tensor, read: Callable[[], Tensor], axis: Axis) -> None:
    """Fill ``target``, which the ranks of ``axis`` have alike, with what the first of them reads.

    Raises:
        CheckpointInvalidError, MemoryError, OSError: on all ranks, if the first one could not read.
    """
    error = _try_to_fill(target, read) if axis.rank == 0 else None
    _raise_on_all(error, axis)
    target = target.detach()
    sent = target if target.is_contiguous() else target.contiguous()
    axis.broadcast(_bytes_of(sent), source=0)
    if sent is not target:
        target.copy_(sent)


def _try_to_fill(target: Tensor, read: Callable[[], Tensor]) -> Exception | None:
    try:
        fill(target, read())
    except _SENT_ERRORS as error:
        return error
    return None


def _raise_on_all(error: Exception | None, axis: Axis) -> None:
    message = torch.empty(0, dtype=torch.uint8)
    if error is not None:
        kind = next(index for index, sent in enumerate(_SENT_ERRORS) if isinstance(error, sent))
        message = torch.frombuffer(bytearray([kind, *str(error).encode()]), dtype=torch.uint8)
    length = torch.tensor(len(message), device=axis.device)
    axis.broadcast(length, source=0)
    if not length:
        return
    sent = (
        message.to(axis.device) if error else torch.empty(int(length), dtype=torch.uint8, device=axis.device)
    )
    axis.broadcast(sent, source=0)
    if error is not None:
        raise error
    kind, *text = sent.tolist()
    raise _SENT_ERRORS[kind](bytes(text).decode(errors="replace"))


def _bytes_of(tensor: Tensor) -> Tensor:
    """The bytes of a contiguous tensor, in its memory."""
    return tensor.reshape(-1).view(torch.uint8)
