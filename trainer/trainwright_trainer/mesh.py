"""The ranks of one training, the axes they form, and what the ranks of an axis say to each other.

One process a device. The ranks stand in a grid of pipeline × replica × shard × tensor (``contracts.parallelism_spec``), and
an ``Axis`` is this rank's line through it: the ranks that differ from it in that coordinate only. Whoever cuts something
over ranks is given the axis that it is cut over, and never asks for another. With one rank on an axis there is nobody
to speak with, and every operation is the identity.

Process groups are made when an axis is first spoken on, and only its own ranks take part in making one: a large run does
not wait for groups that nobody uses, and not for each other's.

A collective that breaks because another rank is gone raises ``RankLostError``: the rank that sees it is a witness, not the
cause.

On CPUs ranks speak over gloo, with one thread a group where torch would start two (``CPU_BACKEND``).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from trainwright.contracts.job_spec import JobSpec
from trainwright.contracts.parallelism_spec import Degrees, Place
from trainwright_trainer.devices import number_by_bus

_COLLECTIVE_TIMEOUT = timedelta(hours=2)
"""Ranks wait in a collective while one of them hashes or writes a checkpoint of hundreds of gigabytes. A rank that dies
is seen by the launcher at once, whatever this says; NCCL's own 10 minutes would end trainings that are only slow."""

_GLOO_LOST_A_PEER = "gloo/transport/"
"""gloo has no exception of its own: it names the line of its source that lost the connection."""


_all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
"""Up to torch 2.12 it has the longer name only, and from 2.13 that one warns."""

_reduce_scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)


CPU_BACKEND = "gloo_in_turn"
"""gloo, whose collectives of one group end one after the other.

By itself torch gives each group two threads, and when a collective ends, its thread writes the collective's name into one
string of the group, without a lock (torch 2.13, ``ProcessGroupGloo::runLoop``). Names of up to 15 letters stay where they
are. ``ALLGATHER_COALESCED``, which every gather is in a compiled graph, lies on the heap, and two threads that end at
once free it twice. With one thread there is nobody to meet."""


class Coming(NamedTuple):
    """What a collective fills that was begun."""

    tensor: Tensor
    work: dist.Work


class RankLostError(RuntimeError):
    """A collective failed: another rank has left or cannot be reached."""


@dataclass(frozen=True)
class Axis:
    """Some ranks in order, of which this process is one, and their collectives."""

    members: tuple[int, ...]
    """Global ranks."""

    rank: int
    """This process's place among them."""

    device: torch.device
    apart: bool = False
    """Whether it has a group of its own even where that of all ranks would do: two threads must not speak on one."""

    @property
    def ranks(self) -> int:
        return len(self.members)

    @cached_property
    def group(self) -> dist.ProcessGroup | None:
        """Made when first asked for, which all members must do in the same order of axes; None for a single rank."""
        if self.ranks == 1:
            return None
        if self.ranks == dist.get_world_size() and not self.apart:
            return dist.group.WORLD
        made: dist.ProcessGroup = dist.new_group(
            list(self.members), timeout=_COLLECTIVE_TIMEOUT, use_local_synchronization=True
        )
        return made

    def sum(self, tensor: Tensor) -> Tensor:
        """Add ``tensor`` up over all ranks, in place."""
        if self.ranks > 1:
            with naming_lost_ranks():
                dist.all_reduce(tensor, group=self.group)
        return tensor

    def start_sum(self, tensor: Tensor) -> dist.Work:
        """Begin to add ``tensor`` up in place; it may be used after ``finish``."""
        with naming_lost_ranks():
            work: dist.Work | None = dist.all_reduce(tensor, group=self.group, async_op=True)
        assert work is not None
        return work

    def finish(self, work: dist.Work) -> None:
        with naming_lost_ranks():
            work.wait()

    def max(self, tensor: Tensor) -> Tensor:
        """The element-wise maximum of ``tensor`` over all ranks, in place. NaN may get lost: turn it into infinity."""
        if self.ranks > 1:
            with naming_lost_ranks():
                dist.all_reduce(tensor, dist.ReduceOp.MAX, group=self.group)
        return tensor

    def exchange(self, sent: Tensor, sent_rows: Sequence[int], received_rows: Sequence[int]) -> Tensor:
        """Give each rank its share of the rows of ``sent`` and return the rows that all ranks gave this one.

        Bytes travel as they are (float8 too, which gloo does not know).
        """
        received = sent.new_empty(sum(received_rows), *sent.shape[1:])
        with naming_lost_ranks():
            dist.all_to_all_single(
                received.view(torch.uint8),
                sent.view(torch.uint8),
                list(received_rows),
                list(sent_rows),
                group=self.group,
            )
        return received

    def gather(self, shares: Tensor) -> None:
        """Fill ``shares`` (rows, …), of which this rank has filled its ranks-th part, with the parts of all ranks."""
        bytes_of_all = shares.view(torch.uint8)
        own = bytes_of_all.chunk(self.ranks)[self.rank].clone()
        with naming_lost_ranks():
            _all_gather(bytes_of_all, own, group=self.group)

    def gathered(self, part: Tensor) -> Tensor:
        """The parts (rows, …) of all ranks, which have as many rows each, one after the other."""
        whole = part.new_empty(part.shape[0] * self.ranks, *part.shape[1:])
        with naming_lost_ranks():
            _all_gather(whole, part, group=self.group)
        return whole

    def start_gather(self, part: Tensor) -> Coming:
        """Begin to do what ``gathered`` does; bytes travel as they are, in any format."""
        whole = part.new_empty(part.shape[0] * self.ranks, *part.shape[1:])
        with naming_lost_ranks():
            work = _all_gather(
                whole.view(torch.uint8), part.view(torch.uint8), group=self.group, async_op=True
            )
        return Coming(whole, work)

    def start_scatter_sum(self, whole: Tensor) -> Coming:
        """Begin to do what ``scatter_sum`` does."""
        part = whole.new_empty(whole.shape[0] // self.ranks, *whole.shape[1:])
        with naming_lost_ranks():
            work = _reduce_scatter(part, whole, group=self.group, async_op=True)
        return Coming(part, work)

    def arrived(self, coming: Coming) -> Tensor:
        """Wait for what was begun."""
        self.finish(coming.work)
        return coming.tensor

    def scatter_sum(self, whole: Tensor) -> Tensor:
        """Of the sum of ``whole`` (rows, …) over all ranks, this rank's ranks-th part of the rows."""
        part = whole.new_empty(whole.shape[0] // self.ranks, *whole.shape[1:])
        with naming_lost_ranks():
            _reduce_scatter(part, whole, group=self.group)
        return part

    def broadcast(self, tensor: Tensor, source: int) -> None:
        """Replace ``tensor`` by that of the axis' rank ``source``, in place."""
        if self.ranks > 1:
            with naming_lost_ranks():
                dist.broadcast(
                    tensor.view(torch.uint8) if tensor.itemsize == 1 else tensor,
                    self.members[source],
                    group=self.group,
                )

    def start_broadcast(self, tensor: Tensor, source: int) -> dist.Work:
        """Begin to replace ``tensor`` by that of the axis' rank ``source``; it may be used after ``finish``."""
        with naming_lost_ranks():
            work: dist.Work | None = dist.broadcast(
                tensor, self.members[source], group=self.group, async_op=True
            )
        assert work is not None
        return work

    def start_sum_at(self, tensor: Tensor, target: int) -> dist.Work:
        """Begin to add ``tensor`` up at the axis' rank ``target``; after ``finish`` the others' is of no use."""
        with naming_lost_ranks():
            work: dist.Work | None = dist.reduce(
                tensor, self.members[target], group=self.group, async_op=True
            )
        assert work is not None
        return work

    def send(self, tensor: Tensor, member: int) -> None:
        """Give ``tensor`` to the axis' rank ``member``, which must receive it."""
        with naming_lost_ranks():
            dist.send(tensor, self.members[member], group=self.group)

    def receive(self, tensor: Tensor, member: int) -> None:
        """Fill ``tensor`` with what the axis' rank ``member`` sends."""
        with naming_lost_ranks():
            dist.recv(tensor, self.members[member], group=self.group)

    def barrier(self) -> None:
        """Wait until every rank is here."""
        self.sum(torch.zeros(1, device=self.device))
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


@dataclass(frozen=True)
class Mesh:
    """This rank's place in the grid, and its axes."""

    world: Axis
    degrees: Degrees

    @property
    def rank(self) -> int:
        return self.world.rank

    @property
    def ranks(self) -> int:
        return self.world.ranks

    @property
    def device(self) -> torch.device:
        return self.world.device

    @cached_property
    def place(self) -> Place:
        return self.degrees.place(self.rank)

    @cached_property
    def tensor(self) -> Axis:
        """Ranks that hold parts of the same matrices and see the same sequences."""
        return self._axis([replace(self.place, tensor=index) for index in range(self.degrees.tensor)])

    @cached_property
    def shard(self) -> Axis:
        """Data ranks that share one copy of what is cut."""
        return self._axis([replace(self.place, shard=index) for index in range(self.degrees.shard)])

    @cached_property
    def replicas(self) -> Axis:
        """Data ranks that hold the same part of what is cut."""
        return self._axis([replace(self.place, replica=index) for index in range(self.degrees.replicas)])

    @cached_property
    def data(self) -> Axis:
        """Ranks that hold the same part of the model and see other sequences; shards of a replica are neighbours."""
        return self._axis(
            [
                replace(self.place, replica=replica, shard=shard)
                for replica in range(self.degrees.replicas)
                for shard in range(self.degrees.shard)
            ]
        )

    @cached_property
    def pipeline(self) -> Axis:
        """Ranks that hold the stages of one pipeline."""
        return self._axis([replace(self.place, pipeline=index) for index in range(self.degrees.pipeline)])

    @cached_property
    def model(self) -> Axis:
        """Ranks that hold one copy of the model together: those of one pipeline and tensor group."""
        return self._axis(
            [
                replace(self.place, pipeline=stage, tensor=part)
                for stage in range(self.degrees.pipeline)
                for part in range(self.degrees.tensor)
            ]
        )

    @cached_property
    def stage(self) -> Axis:
        """Ranks that hold the same layers: those of the data axis with their tensor groups."""
        return self._axis(
            [
                replace(self.place, replica=replica, shard=shard, tensor=part)
                for replica in range(self.degrees.replicas)
                for shard in range(self.degrees.shard)
                for part in range(self.degrees.tensor)
            ]
        )

    def leave(self) -> None:
        if self.ranks > 1:
            dist.destroy_process_group()

    def _axis(self, places: list[Place]) -> Axis:
        members = tuple(self.degrees.rank_at(place) for place in places)
        if members == self.world.members:
            return self.world
        return Axis(members, members.index(self.rank), self.device)


def join_mesh(job: JobSpec) -> Mesh:
    """Take this process's place, which the launcher wrote into the environment, and its device."""
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = _device(job, rank)
    if ranks > 1:
        if device.type == "cuda":
            dist.init_process_group("nccl", device_id=device, timeout=_COLLECTIVE_TIMEOUT)
        else:
            dist.init_process_group(CPU_BACKEND, timeout=_COLLECTIVE_TIMEOUT)
    return make_mesh(rank, job.spec.degrees, device)


def make_mesh(rank: int, degrees: Degrees, device: torch.device) -> Mesh:
    """The mesh as global rank ``rank`` sees it; where there are several, the process group must be there."""
    return Mesh(Axis(tuple(range(degrees.ranks)), rank, device), degrees)


def alone(device: torch.device) -> Mesh:
    """A mesh of one rank."""
    return make_mesh(0, Degrees(), device)


def _gloo_in_turn(given: Any, _: object) -> dist.ProcessGroupGloo:
    """What torch makes of "gloo", whose options it gives nobody a way to choose, but for the threads."""
    gloo = dist.ProcessGroupGloo
    interfaces = os.environ.get("GLOO_SOCKET_IFNAME")
    options = gloo._Options()  # type: ignore[attr-defined]
    options._threads, options._timeout = 1, given.timeout
    options._devices = (
        [gloo.create_device(interface=name) for name in interfaces.split(",") if name]
        if interfaces
        else [gloo.create_default_device()]
    )
    options.global_ranks_in_group, options.group_name = given.global_ranks_in_group, given.group_id
    return gloo(given.store, given.group_rank, given.group_size, options)


dist.Backend.register_backend(CPU_BACKEND, _gloo_in_turn, extended_api=True, devices=["cpu"])


def _device(job: JobSpec, rank: int) -> torch.device:
    if job.device == "cpu":
        torch.set_num_threads(job.threads_per_rank)
        return torch.device("cpu")
    number_by_bus()
    device = torch.device("cuda", job.slots[rank])
    torch.cuda.set_device(device)
    return device


@contextmanager
def naming_lost_ranks() -> Iterator[None]:
    """Turn the error of a collective that lost another rank into ``RankLostError``."""
    try:
        yield
    except RankLostError:
        raise
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and _GLOO_LOST_A_PEER not in str(error):
            raise
        raise RankLostError(f"lost contact with another rank: {error}") from error
