"""The self-test: what this machine's devices are, and how fast its CPU multiplies.

A CPU's peak stands in no data sheet that fits a share of its cores, so it is measured: as many processes as there are
slots multiply matrices at the same time, each with its share of the threads. The fastest product of each slot counts,
since a peak must not depend on what else the machine was doing (small products fit between two interruptions, large
ones fill many threads); the figure is the mean over the slots.

CPUs have no products in FP8: the trainer widens the codes to bfloat16 and multiplies those (``fp8.products``), so that the
peak of bfloat16 is that of FP8 too. Widening is work of the operands' size, which the product's outgrows.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from multiprocessing.sharedctypes import SynchronizedArray
from multiprocessing.synchronize import Barrier
from typing import Any

import torch

from trainwright_trainer.devices import number_by_bus
from trainwright_trainer.observe.memory import cpu_name

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
_SIZES = (512, 1_024)
_SECONDS_PER_SIZE = 0.5


def selftest(slots: int) -> dict[str, Any]:
    """Figures for ``slots`` CPU slots, and the GPUs that a rank can take, under the numbers of their slots."""
    threads = max(1, len(os.sched_getaffinity(0)) // slots)
    rates = _measure(slots, threads)
    cpu = {"name": cpu_name(), "slots": slots, "threads_per_slot": threads, "flops_per_second": rates}
    return {"cpu": cpu, "cuda": _gpus()}


def _gpus() -> list[dict[str, Any]]:
    """What torch can compute on: none where it was built without CUDA or the driver does not suit it."""
    number_by_bus()
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    found = [torch.cuda.get_device_properties(index) for index in range(count)]
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
    means = {
        name: sum(rates[place * slots : (place + 1) * slots]) / slots for place, name in enumerate(_DTYPES)
    }
    return means | {"fp8": means["bf16"]}


def _multiply(
    slot: int, slots: int, threads: int, together: Barrier, rates: SynchronizedArray[float]
) -> None:
    torch.set_num_threads(threads)
    for place, dtype in enumerate(_DTYPES.values()):
        together.wait()
        rates[place * slots + slot] = max(_fastest_rate(size, dtype) for size in _SIZES)
        together.wait()


def _fastest_rate(size: int, dtype: torch.dtype) -> float:
    """FLOP/s of the fastest of many products of square matrices, after one that warms up."""
    left, right = torch.randn(2, size, size).to(dtype)
    left @ right
    fastest_seconds = float("inf")
    end = time.perf_counter() + _SECONDS_PER_SIZE
    while (began := time.perf_counter()) < end:
        left @ right
        fastest_seconds = min(fastest_seconds, time.perf_counter() - began)
    return 2 * size**3 / fastest_seconds
