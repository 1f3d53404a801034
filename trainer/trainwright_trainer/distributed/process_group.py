"""torch's process groups: one backend per kind of device, the order of their creation, and the timeout of their
collectives.

On GPUs a group is a split of the world's communicator, and a split is a collective of all ranks: a rank that made a
group alone, or in another order, would wait for the others until the timeout. So all groups of a mesh are created at the
start, in one order (``Mesh.create_groups``), and none later.

On CPUs ranks use gloo with one thread per group where torch would start two (``CPU_BACKEND``). The ranks of a group
create it without the others.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

COLLECTIVE_TIMEOUT = timedelta(hours=2)
"""Ranks wait in a collective while one of them hashes or writes a checkpoint of hundreds of gigabytes. The launcher
notices a dead rank at once, independently of this timeout; NCCL's default of 10 minutes would end trainings that are
only slow."""

CPU_BACKEND = "gloo_in_turn"
"""gloo with one thread per process group, so that the group's collectives end one after the other.

torch gives each group two threads. When a collective ends, its thread writes the collective's name into one string of
the group, without a lock (torch 2.13, ``ProcessGroupGloo::runLoop``). Names of up to 15 letters are stored in place.
``ALLGATHER_COALESCED``, the name of every gather in a compiled graph, is stored on the heap, and two threads that end
at the same time free it twice. With one thread this cannot happen."""


def init_process_group(device: torch.device) -> None:
    """Create the group of all ranks; the launcher wrote their number and addresses into the environment."""
    if device.type == "cuda":
        dist.init_process_group("nccl", device_id=device, timeout=COLLECTIVE_TIMEOUT)
    else:
        dist.init_process_group(CPU_BACKEND, timeout=COLLECTIVE_TIMEOUT)


Lines = tuple[tuple[int, ...], ...]
"""The ranks of the world, each in one line: those that communicate along one axis. Ascending."""


class ProcessGroups:
    """The process groups of a mesh. Axes with the same ranks share one."""

    def __init__(self) -> None:
        self._made: dict[tuple[Lines, bool], dist.ProcessGroup] = {}
        self._complete = False

    def get(self, lines: Lines, own: bool, rank: int, device: torch.device) -> dist.ProcessGroup:
        """The group of the line with ``rank``, created at the first call.

        Args:
            own: not shared with the axes of the same ranks: two threads must not use one group.
        """
        made = self._made.get((lines, own))
        if made is None:
            assert not self._complete, (
                f"no group of {lines} was created at the start, with those of all ranks"
            )
            made = self._made[lines, own] = _make_group(lines, rank, device)
        return made

    @contextmanager
    def creating(self) -> Iterator[None]:
        """All groups are created in this context, and none after it."""
        self._complete = False
        yield
        self._complete = True


def _make_group(lines: Lines, rank: int, device: torch.device) -> dist.ProcessGroup:
    if device.type == "cuda":
        split = dist.split_group(split_ranks=[list(line) for line in lines], timeout=COLLECTIVE_TIMEOUT)
        assert split is not None
        return split
    (mine,) = (line for line in lines if rank in line)
    made: dist.ProcessGroup = dist.new_group(
        list(mine), timeout=COLLECTIVE_TIMEOUT, use_local_synchronization=True
    )
    return made


def _gloo_in_turn(given: Any, _: object) -> dist.ProcessGroupGloo:
    """What torch creates for "gloo", with one thread; torch has no public option for it."""
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
