"""The collectives of one axis of the mesh.

With one rank on an axis every operation is the identity.

Its process group belongs to the mesh, which creates all groups at the start (``distributed.process_group``).

Each collective is counted in the rank's progress, which shows the agent which rank the others wait for. A collective in
the background is entered at its start, and left at the end of the wait for it.

A collective that fails because another rank is gone raises ``RankLostError``: this rank is a witness, not the
cause.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from trainwright.contracts.rank_progress import AxisName, Operation
from trainwright_trainer.distributed.process_group import Lines, ProcessGroups
from trainwright_trainer.distributed.progress_counters import ProgressCounters

_GLOO_LOST_A_PEER = "gloo/transport/"
"""gloo has no exception class for this, but names the line of its source that lost the connection."""


_all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
"""torch 2.12 and older have only the longer name; torch 2.13 and newer warn about it."""

_reduce_scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)


class PendingTensor(NamedTuple):
    """The result of a collective that is still running."""

    tensor: Tensor
    work: dist.Work


class PendingTensors(NamedTuple):
    """Tensors that are still being received."""

    works: Sequence[dist.Work]


class RankLostError(RuntimeError):
    """A collective failed: another rank has left or cannot be reached."""


@dataclass(frozen=True)
class Axis:
    """An ordered set of ranks that includes this process, and their collectives."""

    lines: Lines
    """The ranks of the world along this axis; one of the lines has this process."""

    world_rank: int
    """This process."""

    device: torch.device
    groups: ProcessGroups = field(default_factory=ProcessGroups, compare=False)
    own_group: bool = False
    """Whether it needs its own process group even if another axis has the same ranks: two threads must not use
    one group."""

    name: AxisName = field(default=AxisName.WORLD, compare=False)
    progress: ProgressCounters = field(default_factory=ProgressCounters, compare=False)
    """Where this process publishes the collectives that it enters and leaves."""

    @cached_property
    def global_ranks(self) -> tuple[int, ...]:
        """Global ranks in the order of the axis."""
        (mine,) = (line for line in self.lines if self.world_rank in line)
        return mine

    @cached_property
    def rank(self) -> int:
        """This process's index among them."""
        return self.global_ranks.index(self.world_rank)

    @property
    def ranks(self) -> int:
        return len(self.global_ranks)

    @cached_property
    def group(self) -> dist.ProcessGroup | None:
        """None for a single rank."""
        if self.ranks == 1:
            return None
        if self.ranks == dist.get_world_size() and not self.own_group:
            return dist.group.WORLD
        return self.groups.get(self.lines, self.own_group, self.world_rank, self.device)

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """Sum ``tensor`` over all ranks, in place."""
        if self.ranks > 1:
            with detect_lost_ranks():
                self._enter(Operation.ALL_REDUCE)
                dist.all_reduce(tensor, group=self.group)
                self._leave()
        return tensor

    def all_reduce_async(self, tensor: Tensor) -> dist.Work:
        """Start to sum ``tensor`` in place; it may be used after ``wait``."""
        with detect_lost_ranks():
            self._enter(Operation.ALL_REDUCE)
            work: dist.Work | None = dist.all_reduce(tensor, group=self.group, async_op=True)
        assert work is not None
        return work

    def wait(self, work: dist.Work) -> None:
        with detect_lost_ranks():
            work.wait()
            self._leave()

    def all_reduce_max(self, tensor: Tensor) -> Tensor:
        """The element-wise maximum of ``tensor`` over all ranks, in place. NaN may get lost: convert it to
        infinity first.
        """
        if self.ranks > 1:
            with detect_lost_ranks():
                self._enter(Operation.ALL_REDUCE)
                dist.all_reduce(tensor, dist.ReduceOp.MAX, group=self.group)
                self._leave()
        return tensor

    def all_to_all(self, sent: Tensor, sent_rows: Sequence[int], received_rows: Sequence[int]) -> Tensor:
        """Send each rank its rows of ``sent`` and return the rows received from all ranks.

        Tensors are sent as bytes, because gloo does not support float8.
        """
        received = sent.new_empty(sum(received_rows), *sent.shape[1:])
        with detect_lost_ranks():
            self._enter(Operation.ALL_TO_ALL)
            dist.all_to_all_single(
                received.view(torch.uint8),
                sent.view(torch.uint8),
                list(received_rows),
                list(sent_rows),
                group=self.group,
            )
            self._leave()
        return received

    def all_gather_into(self, shares: Tensor) -> None:
        """Fill ``shares`` (rows, …) with the shares of all ranks; this rank has already filled its own."""
        bytes_of_all = shares.view(torch.uint8)
        own = bytes_of_all.chunk(self.ranks)[self.rank].clone()
        with detect_lost_ranks():
            self._enter(Operation.ALL_GATHER)
            _all_gather(bytes_of_all, own, group=self.group)
            self._leave()

    def all_gather(self, part: Tensor) -> Tensor:
        """Concatenate the parts (rows, …) of all ranks, which have equally many rows."""
        full = part.new_empty(part.shape[0] * self.ranks, *part.shape[1:])
        with detect_lost_ranks():
            self._enter(Operation.ALL_GATHER)
            _all_gather(full, part, group=self.group)
            self._leave()
        return full

    def all_gather_async(self, part: Tensor) -> PendingTensor:
        """Start an ``all_gather``; tensors of any format are sent as bytes."""
        full = part.new_empty(part.shape[0] * self.ranks, *part.shape[1:])
        with detect_lost_ranks():
            self._enter(Operation.ALL_GATHER)
            work = _all_gather(
                full.view(torch.uint8), part.view(torch.uint8), group=self.group, async_op=True
            )
        return PendingTensor(full, work)

    def reduce_scatter_async(self, full: Tensor) -> PendingTensor:
        """Start a ``reduce_scatter``."""
        part = full.new_empty(full.shape[0] // self.ranks, *full.shape[1:])
        with detect_lost_ranks():
            self._enter(Operation.REDUCE_SCATTER)
            work = _reduce_scatter(part, full, group=self.group, async_op=True)
        return PendingTensor(part, work)

    def wait_tensor(self, pending: PendingTensor) -> Tensor:
        """Wait for a pending collective and return its result."""
        self.wait(pending.work)
        return pending.tensor

    def reduce_scatter(self, full: Tensor) -> Tensor:
        """Sum ``full`` (rows, …) over all ranks and return this rank's share of the rows."""
        part = full.new_empty(full.shape[0] // self.ranks, *full.shape[1:])
        with detect_lost_ranks():
            self._enter(Operation.REDUCE_SCATTER)
            _reduce_scatter(part, full, group=self.group)
            self._leave()
        return part

    def broadcast(self, tensor: Tensor, source: int) -> None:
        """Replace ``tensor`` by that of the axis's rank ``source``, in place."""
        if self.ranks > 1:
            with detect_lost_ranks():
                self._enter(Operation.BROADCAST)
                dist.broadcast(
                    tensor.view(torch.uint8) if tensor.itemsize == 1 else tensor,
                    self.global_ranks[source],
                    group=self.group,
                )
                self._leave()

    def broadcast_all_async(self, tensors: Sequence[tuple[int, Tensor]]) -> PendingTensors | None:
        """Start to replace each tensor by that of the axis's rank with its number; they may be used after ``wait_all``.

        In the progress they are one collective; without tensors there is none.
        """
        if not tensors:
            return None
        with detect_lost_ranks():
            self._enter(Operation.BROADCAST)
            works = [
                dist.broadcast(tensor, self.global_ranks[source], group=self.group, async_op=True)
                for source, tensor in tensors
            ]
        return PendingTensors([work for work in works if work is not None])

    def wait_all(self, pending: PendingTensors | None) -> None:
        if pending is not None:
            with detect_lost_ranks():
                for work in pending.works:
                    work.wait()
                self._leave()

    def reduce_async(self, tensor: Tensor, target: int) -> dist.Work:
        """Start to sum ``tensor`` on the axis's rank ``target``; afterwards the other ranks' tensors are
        undefined.
        """
        with detect_lost_ranks():
            self._enter(Operation.REDUCE)
            work: dist.Work | None = dist.reduce(
                tensor, self.global_ranks[target], group=self.group, async_op=True
            )
        assert work is not None
        return work

    def send(self, tensor: Tensor, member: int) -> None:
        """Send ``tensor`` to the axis's rank ``member``, which must receive it."""
        self.progress.count_message()
        with detect_lost_ranks():
            dist.send(tensor, self.global_ranks[member], group=self.group)

    def receive(self, tensor: Tensor, member: int) -> None:
        """Fill ``tensor`` with what the axis's rank ``member`` sends."""
        self.progress.count_message()
        with detect_lost_ranks():
            dist.recv(tensor, self.global_ranks[member], group=self.group)

    def barrier(self) -> None:
        """Wait until every rank is here."""
        self.all_reduce(torch.zeros(1, device=self.device))
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _enter(self, operation: Operation) -> None:
        if not torch.compiler.is_compiling():  # a graph cannot contain it
            self.progress.enter(self.name, operation)

    def _leave(self) -> None:
        if not torch.compiler.is_compiling():
            self.progress.leave(self.name)


@contextmanager
def detect_lost_ranks() -> Iterator[None]:
    """Raise ``RankLostError`` if a collective failed because another rank is gone."""
    try:
        yield
    except RankLostError:
        raise
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and _GLOO_LOST_A_PEER not in str(error):
            raise
        raise RankLostError(f"lost contact with another rank: {error}") from error
