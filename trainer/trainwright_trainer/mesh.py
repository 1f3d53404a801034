"""The ranks of one training and what they say to each other.

One process a device. With a single rank there is no process group at all: every operation below is then the
identity. Tensor, pipeline and context axes will become further fields here; today all ranks are replicas.

A collective that breaks because another rank is gone raises ``RankLostError``: the rank that sees it is a witness, not the
cause.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from trainwright.contracts.job_spec import JobSpec
from trainwright_trainer.devices import number_by_bus

_COLLECTIVE_TIMEOUT = timedelta(hours=2)
"""Ranks wait in a collective while one of them hashes or writes a checkpoint of hundreds of gigabytes. A rank that dies
is seen by the launcher at once, whatever this says; NCCL's own 10 minutes would end trainings that are only slow."""

_GLOO_LOST_A_PEER = "gloo/transport/"
"""gloo has no exception of its own: it names the line of its source that lost the connection."""


_all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
"""Up to torch 2.12 it has the longer name only, and from 2.13 that one warns."""


class RankLostError(RuntimeError):
    """A collective failed: another rank has left or cannot be reached."""


@dataclass(frozen=True)
class Mesh:
    """This rank's place among all."""

    rank: int
    ranks: int
    device: torch.device

    def sum(self, tensor: Tensor) -> Tensor:
        """Add ``tensor`` up over all ranks, in place."""
        if self.ranks > 1:
            with _naming_lost_ranks():
                dist.all_reduce(tensor)
        return tensor

    def start_sum(self, tensor: Tensor) -> dist.Work:
        """Begin to add ``tensor`` up in place; it may be used after ``finish``."""
        with _naming_lost_ranks():
            work: dist.Work | None = dist.all_reduce(tensor, async_op=True)
        assert work is not None
        return work

    def finish(self, work: dist.Work) -> None:
        with _naming_lost_ranks():
            work.wait()

    def max(self, tensor: Tensor) -> Tensor:
        """The element-wise maximum of ``tensor`` over all ranks, in place. NaN may get lost: turn it into infinity."""
        if self.ranks > 1:
            with _naming_lost_ranks():
                dist.all_reduce(tensor, dist.ReduceOp.MAX)
        return tensor

    def exchange(self, sent: Tensor, sent_rows: Sequence[int], received_rows: Sequence[int]) -> Tensor:
        """Give each rank its share of the rows of ``sent`` and return the rows that all ranks gave this one.

        Bytes travel as they are (float8 too, which gloo does not know).
        """
        received = sent.new_empty(sum(received_rows), *sent.shape[1:])
        with _naming_lost_ranks():
            dist.all_to_all_single(
                received.view(torch.uint8), sent.view(torch.uint8), list(received_rows), list(sent_rows)
            )
        return received

    def gather(self, shares: Tensor) -> None:
        """Fill ``shares`` (rows, …), of which this rank has filled its ranks-th part, with the parts of all ranks."""
        bytes_of_all = shares.view(torch.uint8)
        own = bytes_of_all.chunk(self.ranks)[self.rank].clone()
        with _naming_lost_ranks():
            _all_gather(bytes_of_all, own)

    def broadcast(self, tensor: Tensor, source: int) -> None:
        """Replace ``tensor`` by that of rank ``source``, in place."""
        if self.ranks > 1:
            with _naming_lost_ranks():
                dist.broadcast(tensor.view(torch.uint8) if tensor.itemsize == 1 else tensor, source)

    def barrier(self) -> None:
        """Wait until every rank is here."""
        self.sum(torch.zeros(1, device=self.device))
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def leave(self) -> None:
        if self.ranks > 1:
            dist.destroy_process_group()


def join_mesh(job: JobSpec) -> Mesh:
    """Take this process's place, which the launcher wrote into the environment, and its device."""
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = _device(job, rank)
    if ranks > 1:
        if device.type == "cuda":
            dist.init_process_group("nccl", device_id=device, timeout=_COLLECTIVE_TIMEOUT)
        else:
            dist.init_process_group("gloo", timeout=_COLLECTIVE_TIMEOUT)
    return Mesh(rank, ranks, device)


def _device(job: JobSpec, rank: int) -> torch.device:
    if job.device == "cpu":
        torch.set_num_threads(job.threads_per_rank)
        return torch.device("cpu")
    number_by_bus()
    device = torch.device("cuda", job.slots[rank])
    torch.cuda.set_device(device)
    return device


@contextmanager
def _naming_lost_ranks() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and _GLOO_LOST_A_PEER not in str(error):
            raise
        raise RankLostError(f"lost contact with another rank: {error}") from error
