"""torch's process groups: one backend per kind of device, and the timeout of their collectives.

On CPUs ranks use gloo with one thread per group where torch would start two (``CPU_BACKEND``).
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

COLLECTIVE_TIMEOUT = timedelta(hours=2)
"""Ranks wait in a collective while one of them hashes or writes a checkpoint of hundreds of gigabytes. The
launcher notices a dead rank at once, whatever this timeout; NCCL's default of 10 minutes would end trainings
that are only slow."""

CPU_BACKEND = "gloo_in_turn"
"""gloo with one thread per process group, so that the group's collectives end one after the other.

torch gives each group two threads. When a collective ends, its thread writes the collective's name into one
string of the group, without a lock (torch 2.13, ``ProcessGroupGloo::runLoop``). Names of up to 15 letters are
stored in place. ``ALLGATHER_COALESCED``, which every gather in a compiled graph is, is stored on the heap,
and two threads that end at the same time free it twice. One thread cannot."""


def init_process_group(device: torch.device) -> None:
    """Create the group of all ranks; the launcher wrote their number and addresses into the environment."""
    if device.type == "cuda":
        dist.init_process_group("nccl", device_id=device, timeout=COLLECTIVE_TIMEOUT)
    else:
        dist.init_process_group(CPU_BACKEND, timeout=COLLECTIVE_TIMEOUT)


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
