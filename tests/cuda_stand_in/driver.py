"""``torch.cuda`` without a GPU, and what else of torch needs one."""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch.utils._device import _device_constructors

from tests.cuda_stand_in.placement import Host, tensors_stand_in
from trainwright_trainer.distributed.process_group import CPU_BACKEND

GPUS = 2
MEMORY_BYTES = 16 * 2**30

_autocast = torch.autocast


class Stream:
    """Everything on a stream has completed when the host continues."""

    def __init__(self, device: Any = None, **_: Any) -> None:
        pass

    def wait_stream(self, stream: Stream) -> None:
        assert isinstance(stream, Stream)

    def wait_event(self, event: Event) -> None:
        assert isinstance(event, Event)

    def synchronize(self) -> None:
        pass


class Event:
    """A moment on the host."""

    def __init__(self, enable_timing: bool = False) -> None:
        self._timing = enable_timing

    def record(self, stream: Stream | None = None) -> None:
        self._moment = time.perf_counter()

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end: Event) -> float:
        assert self._timing and end._timing
        return (end._moment - self._moment) * 1e3


class Driver:
    """The functions of ``torch.cuda``, by their names."""

    Stream, Event = Stream, Event

    def __init__(self) -> None:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        self._count = GPUS if visible is None else len([name for name in visible.split(",") if name])
        self._current = 0
        self._stream = Stream()
        self.host = Host(self._with_index)
        self.default_generators = tuple(torch.Generator() for _ in range(self._count))

    def _with_index(self, device: torch.device | str) -> torch.device:
        device = torch.device(device)
        if device.type != "cuda":
            return device
        index = self._current if device.index is None else device.index
        if index >= self._count:
            raise RuntimeError("CUDA error: invalid device ordinal")
        return torch.device("cuda", index)

    def is_available(self) -> bool:
        return self._count > 0

    def device_count(self) -> int:
        return self._count

    def current_device(self) -> int:
        return self._current

    def set_device(self, device: torch.device | int) -> None:
        self._current = torch.device("cuda", device).index if isinstance(device, int) else device.index

    def synchronize(self, device: object = None) -> None:
        pass

    def set_sync_debug_mode(self, mode: str) -> None:
        self.host.may_wait = mode != "error"

    def current_stream(self, device: object = None) -> Stream:
        return self._stream

    def stream(self, stream: Stream) -> nullcontext[None]:
        assert isinstance(stream, Stream)
        return nullcontext()

    def get_device_capability(self, device: object = None) -> tuple[int, int]:
        return 9, 0

    def get_device_name(self, device: object = None) -> str:
        return "NVIDIA H200"

    def get_device_properties(self, device: object = None) -> SimpleNamespace:
        return SimpleNamespace(name="NVIDIA H200", total_memory=MEMORY_BYTES, major=9, minor=0)

    def mem_get_info(self, device: object = None) -> tuple[int, int]:
        return MEMORY_BYTES, MEMORY_BYTES

    def max_memory_allocated(self, device: object = None) -> int:
        return 2**30

    def reset_peak_memory_stats(self, device: object = None) -> None:
        pass

    def empty_cache(self) -> None:
        pass

    def set_per_process_memory_fraction(self, fraction: float, device: object = None) -> None:
        assert 0 < fraction <= 1

    def cudart(self) -> SimpleNamespace:
        pinned = self.host.pinned

        def register(address: int, size: int, flags: int) -> int:
            pinned[address] = size
            return 0

        def unregister(address: int) -> int:
            return 0 if pinned.pop(address, None) is not None else 1

        return SimpleNamespace(cudaHostRegister=register, cudaHostUnregister=unregister)

    def _lazy_init(self) -> None:
        pass


def _init_process_group(backend: str, device_id: torch.device | None = None, **how: Any) -> None:
    assert backend == "nccl"
    _real_init(CPU_BACKEND, **how)


_real_init = dist.init_process_group


def _split_group(split_ranks: list[list[int]], **how: Any) -> dist.ProcessGroup:
    """Waits for all ranks of the world, which must split it alike."""
    told = zlib.crc32(repr(split_ranks).encode())
    least_and_most = torch.tensor([-told, told])
    dist.all_reduce(least_and_most, dist.ReduceOp.MAX)
    assert least_and_most.tolist() == [-told, told], "ranks split the world in different ways"
    (mine,) = (line for line in split_ranks if dist.get_rank() in line)
    return dist.new_group(mine, use_local_synchronization=True, **how)


@contextmanager
def cuda_stand_in() -> Iterator[None]:
    """GPUs that are this CPU, in this process."""
    driver = Driver()
    functions = {
        name: getattr(driver, name) for name in dir(driver) if name == "_lazy_init" or name[0] != "_"
    }
    functions.pop("host")
    with ExitStack() as stack:
        # After all others: torch caches the functions that were replaced here.
        stack.callback(_device_constructors.cache_clear)
        stack.enter_context(patch.multiple(torch.cuda, **functions))
        stack.enter_context(patch.multiple(torch.cuda.nvtx, range_push=lambda *_: 0, range_pop=lambda: 0))
        stack.enter_context(patch.object(torch.version, "cuda", "12.9"))
        stack.enter_context(patch.object(torch, "compile", lambda function=None, **_: function))
        stack.enter_context(patch.object(torch.nn.Module, "compile", lambda *_, **__: None))
        stack.enter_context(patch.object(torch, "autocast", lambda kind, **how: _autocast("cpu", **how)))
        stack.enter_context(patch.object(dist, "init_process_group", _init_process_group))
        stack.enter_context(patch.object(dist, "split_group", _split_group))
        stack.enter_context(tensors_stand_in(driver.host))
        yield
