"""The self-test: what this machine's devices are, and how fast its CPU multiplies.

A CPU's peak stands in no data sheet that fits a share of its cores, so it is measured: as many processes as there are
slots multiply matrices at the same time, each with its share of the threads, and the figure is their mean.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from multiprocessing.sharedctypes import SynchronizedArray
from multiprocessing.synchronize import Barrier
from typing import Any

import torch

from trainwright_trainer.observe.memory import cpu_name

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
_SIZE = 1_024
_SECONDS = 1.0


def selftest(slots: int) -> dict[str, Any]:
    """Figures for ``slots`` CPU slots, and the GPUs that are here."""
    threads = max(1, len(os.sched_getaffinity(0)) // slots)
    rates = _measure(slots, threads)
    cpu = {"name": cpu_name(), "slots": slots, "threads_per_slot": threads, "flops_per_second": rates}
    return {"cpu": cpu, "cuda": _gpus()}


def _gpus() -> list[dict[str, Any]]:
    found = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    return [
        {"index": index, "name": gpu.name, "memory_bytes": gpu.total_memory}
        for index, gpu in enumerate(found)
    ]


def _measure(slots: int, threads: int) -> dict[str, float]:
    """FLOP/s of one slot by dtype while all are busy."""
    context = multiprocessing.get_context("fork")
    together = context.Barrier(slots)
    rates = context.Array("d", slots * len(_DTYPES))
    processes = [
        context.Process(target=_multiply, args=(slot, slots, threads, together, rates))
        for slot in range(slots)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        if process.exitcode:
            raise RuntimeError(f"a measuring process ended with code {process.exitcode}")
    return {
        name: sum(rates[place * slots : (place + 1) * slots]) / slots for place, name in enumerate(_DTYPES)
    }


def _multiply(
    slot: int, slots: int, threads: int, together: Barrier, rates: SynchronizedArray[float]
) -> None:
    torch.set_num_threads(threads)
    for place, dtype in enumerate(_DTYPES.values()):
        left, right = torch.randn(2, _SIZE, _SIZE).to(dtype)
        left @ right
        together.wait()
        began, products = time.perf_counter(), 0
        while (spent := time.perf_counter() - began) < _SECONDS:
            left @ right
            products += 1
        rates[place * slots + slot] = 2 * _SIZE**3 * products / spent
        together.wait()
