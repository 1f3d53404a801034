"""Injected faults: each collective of a layout is left out or misrouted. The comparison must detect them all.

A fault is injected into a rank's process for the duration of one training by replacing the correct function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor
from torch.distributed.fsdp._fully_shard import _fsdp_collectives

from tests.trainer.fault_injection import inject_fault, own
from trainwright_trainer.distributed.axis import Axis
from trainwright_trainer.optim import replicated_updater, sharded_updater
from trainwright_trainer.optim.replicated_updater import ReplicatedUpdater
from trainwright_trainer.parallel.data.gradient_buckets import GradientBuckets
from trainwright_trainer.parallel.data.owned_parameters import OwnedParameters
from trainwright_trainer.parallel.pipeline.pipelined_forward_backward import PipelineForwardBackward
from trainwright_trainer.parallel.pipeline.torch_schedules import TrainingStage
from trainwright_trainer.parallel.tensor import sequence_parallel, vocab_parallel

Plant = Callable[[], AbstractContextManager[object]]

_DONE = SimpleNamespace(wait=lambda: None)
"""Handle of a collective that was never started."""


def _own_part(part: Tensor, axis: Axis) -> Tensor:
    return torch.cat([part] * axis.ranks, 1)


def _own_summand(whole: Tensor, axis: Axis) -> Tensor:
    own = whole.flatten(0, 1).chunk(axis.ranks)[axis.rank]
    return own.reshape(whole.shape[0], -1, *whole.shape[2:])


_of_all = vocab_parallel.log_sum_and_target


def _own_log_sum(logits: Tensor, targets: Tensor, rows: Any, axis: Axis) -> tuple[Tensor, Tensor]:
    return logits.float().logsumexp(1), _of_all(logits, targets, rows, axis)[1]


def _own_target(logits: Tensor, targets: Tensor, rows: Any, axis: Axis) -> tuple[Tensor, Tensor]:
    offsets = targets - rows.first
    here = (offsets >= 0) & (offsets < rows.size)
    found = logits.float().gather(1, offsets.remainder(rows.size)[:, None])[:, 0]
    return _of_all(logits, targets, rows, axis)[0], found.where(here, 0.0)


def _targets_of_the_first(logits: Tensor, targets: Tensor, rows: Any, axis: Axis) -> tuple[Tensor, Tensor]:
    """Both ranks lack the second one's targets. They agree, so only a text that uses its vocabulary rows reveals the
    fault."""
    log_sum, target = _of_all(logits, targets, rows, axis)
    first_of_second = rows.first or rows.size
    return log_sum, target.masked_fill(targets >= first_of_second, 0.0)


_sum_at = Axis.reduce_async


def _from_the_next_rank(self: Axis, tensor: Tensor, target: int) -> Any:
    return _sum_at(self, tensor, (target + 1) % self.ranks)


_send_backwards = TrainingStage.get_bwd_send_ops


def _gradient_of_the_previous_micro_batch() -> Callable[..., Any]:
    """Each gradient sent back through the stages is that of the previous micro batch."""
    before: dict[int, Tensor] = {}

    def late(self: TrainingStage, chunk: int) -> Any:
        operations = _send_backwards(self, chunk)
        for operation in operations:
            before[chunk] = operation.tensor
            operation.tensor = before.get(chunk - 1, operation.tensor)
        return operations

    return late


_send_forwards, _receive_forwards = TrainingStage.get_fwd_send_ops, TrainingStage.get_fwd_recv_ops


def _send_all_but_one(self: TrainingStage, chunk: int) -> Any:
    return [] if chunk == 1 else _send_forwards(self, chunk)


def _receive_all_but_one(self: TrainingStage, chunk: int) -> Any:
    operations = _receive_forwards(self, chunk)
    for operation in operations if chunk == 1 else ():
        operation.tensor.detach().zero_()
    return [] if chunk == 1 else operations


_clear = GradientBuckets.clear


def _clear_and_reduce_in_hooks(self: GradientBuckets) -> None:
    _clear(self)
    self.reduce_when_ready()


def _complete_without_tied_sum(self: Any) -> None:
    if self._tied:
        self._updater.mark_ready(["embedding.weight"])


def _own_rows(self: Axis, sent: Tensor, sent_rows: Sequence[int], received_rows: Sequence[int]) -> Tensor:
    before = sum(sent_rows[: self.rank])
    return torch.cat([sent[before : before + received_rows[self.rank]]] * self.ranks)


_exchange = Axis.all_to_all


def _rows_of_the_next(
    self: Axis, sent: Tensor, sent_rows: Sequence[int], received_rows: Sequence[int]
) -> Tensor:
    if len(set(sent_rows)) == 1:  # shards of equal length can be misrouted and still fit
        sent = torch.cat(list(reversed(torch.split(sent, list(sent_rows)))))
    return _exchange(self, sent, sent_rows, received_rows)


_gathered = Axis.all_gather


def _own_codes(self: Axis, part: Tensor) -> Tensor:
    """Bytes are FP8 codes; other tensors are gathered correctly."""
    return torch.cat([part] * self.ranks) if part.dtype is torch.uint8 else _gathered(self, part)


def _gathers_own(
    self: Any, output_tensor: Tensor, input_tensor: Tensor, group: Any, *_: Any, **__: Any
) -> Any:
    output_tensor.copy_(input_tensor.repeat(output_tensor.numel() // input_tensor.numel()))
    return _DONE


def _scatters_own(
    self: Any, output_tensor: Tensor, input_tensor: Tensor, group: Any, *_: Any, **__: Any
) -> Any:
    output_tensor.copy_(input_tensor.chunk(group.size())[group.rank()])
    return _DONE


def _nothing(*_: Any, **__: Any) -> None:
    pass


def _own_norm(axis: Axis, norm: Tensor) -> Tensor:
    return norm


def _named_alone(self: ReplicatedUpdater, names: Iterable[str]) -> None:
    """Ignore what the schedule marks as ready."""


class _Both:
    """Two faults injected as one."""

    def __init__(self, *plants: Any) -> None:
        self._plants = plants

    def __enter__(self) -> None:
        for plant in self._plants:
            plant.start()

    def __exit__(self, *_: object) -> None:
        for plant in self._plants:
            plant.stop()


FAULTS: dict[str, Plant] = {
    "data sum": lambda: patch.object(Axis, "all_reduce_async", lambda self, tensor: _DONE),
    "ZeRO 2's sums, at another rank": lambda: patch.object(Axis, "reduce_async", _from_the_next_rank),
    "ZeRO 2's norm": lambda: patch.object(sharded_updater, "norm_over", _own_norm),
    "ZeRO 3's gather": lambda: patch.object(_fsdp_collectives.DefaultAllGather, "__call__", _gathers_own),
    "ZeRO 3's scatter": lambda: patch.object(
        _fsdp_collectives.DefaultReduceScatter, "__call__", _scatters_own
    ),
    "ZeRO owner's broadcast": lambda: patch.object(OwnedParameters, "broadcast_params", _nothing),
    "tensor gather": lambda: patch.object(sequence_parallel, "_all_gather", _own_part),
    "tensor scatter_sum": lambda: patch.object(sequence_parallel, "reduce_scatter_tensor", _own_summand),
    "norm-gradient sum": lambda: inject_fault(Axis, "all_reduce", own, "sum_over_ranks"),
    "vocabulary's log of sums": lambda: patch.object(vocab_parallel, "log_sum_and_target", _own_log_sum),
    "vocabulary's targets": lambda: patch.object(vocab_parallel, "log_sum_and_target", _own_target),
    "vocabulary's targets, of the second rank": lambda: patch.object(
        vocab_parallel, "log_sum_and_target", _targets_of_the_first
    ),
    "norm over the model": lambda: patch.object(replicated_updater, "norm_over", _own_norm),
    "pipeline's activation": lambda: _Both(
        patch.object(TrainingStage, "get_fwd_send_ops", _send_all_but_one),
        patch.object(TrainingStage, "get_fwd_recv_ops", _receive_all_but_one),
    ),
    "pipeline's gradient, another micro batch's": lambda: patch.object(
        TrainingStage, "get_bwd_send_ops", _gradient_of_the_previous_micro_batch()
    ),
    "tied sum": lambda: patch.object(
        PipelineForwardBackward, "reduce_tied_gradient", _complete_without_tied_sum
    ),
    "hooks under zbv": lambda: _Both(
        patch.object(GradientBuckets, "clear", _clear_and_reduce_in_hooks),
        patch.object(ReplicatedUpdater, "mark_ready", _named_alone),
    ),
    "FP8 exchange": lambda: patch.object(Axis, "all_to_all", _own_rows),
    "FP8 exchange, to another rank": lambda: patch.object(Axis, "all_to_all", _rows_of_the_next),
    "FP8 gather": lambda: patch.object(Axis, "all_gather_into", _nothing),
    "FP8 weights' broadcast": lambda: patch.object(Axis, "broadcast", _nothing),
    "FP8 codes of tokens": lambda: patch.object(Axis, "all_gather", _own_codes),
    "FP8 shared maximum": lambda: patch.object(Axis, "all_reduce_max", lambda self, tensor: tensor),
}
"""Faults by the collective that is left out, or by where it is misrouted to."""


class Planted(NamedTuple):
    """A fault, or none, and the cell that must reveal it."""

    fault: str | None
    cell: str


PLANTED: tuple[Planted, ...] = (
    Planted("data sum", "data 2"),
    Planted("ZeRO 2's sums, at another rank", "ZeRO 2 over 2"),
    Planted("ZeRO 2's norm", "ZeRO 2 over 2"),
    Planted("ZeRO 3's gather", "ZeRO 3 over 2"),
    Planted("ZeRO 3's scatter", "ZeRO 3 over 2"),
    Planted("ZeRO owner's broadcast", "ZeRO 1 over 2"),
    Planted("tensor gather", "tensor 2"),
    Planted("tensor scatter_sum", "tensor 2"),
    Planted("norm-gradient sum", "tensor 2"),
    Planted("vocabulary's log of sums", "tensor 2"),
    Planted("vocabulary's targets", "tensor 2"),
    Planted("vocabulary's targets, of the second rank", "tensor 2"),
    Planted("norm over the model", "tensor 2"),
    Planted("pipeline's activation", "pipeline 2"),
    Planted("pipeline's gradient, another micro batch's", "pipeline 2"),
    Planted("tied sum", "pipeline 2, tied"),
    Planted("FP8 exchange", "O2: data 2"),
    Planted("FP8 exchange, to another rank", "O2: data 2"),
    Planted("FP8 gather", "O2: data 2"),
    Planted("FP8 weights' broadcast", "O3: data 2"),
    Planted("FP8 codes of tokens", "O2: tensor 2"),
    Planted("FP8 shared maximum", "O2: tensor 2"),
    Planted("hooks under zbv", "data 2 × zbv 2"),
)
