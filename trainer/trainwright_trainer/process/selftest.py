"""The self-test: which devices this machine has, and how fast its CPU multiplies matrices.

No data sheet gives the peak of a share of a CPU's cores, so it is measured: one process per slot multiplies
matrices, all at the same time, each with its share of the threads. The fastest product of each slot counts,
since a peak must not depend on what else the machine was doing (small products fit between two interruptions,
large ones fill many threads). The result is the mean over the slots.

CPUs have no FP8 products: the trainer widens the codes to bfloat16 and multiplies those
(``fp8.compute.matmul``), so bfloat16's peak is also FP8's. Widening takes time in proportion to the operands'
size, which the product outgrows.
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
from trainwright_trainer.runtime.devices import order_gpus_by_pci_bus

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
_SIZES = (512, 1_024)
_SECONDS_PER_SIZE = 0.5


def selftest(slots: int) -> dict[str, Any]:
    """Measurements for ``slots`` CPU slots, and the GPUs that ranks can use, numbered like their slots."""
    threads = max(1, len(os.sched_getaffinity(0)) // slots)
    rates = measure_rates(slots, threads)
    cpu = {"name": cpu_name(), "slots": slots, "threads_per_slot": threads, "flops_per_second": rates}
    return {"cpu": cpu, "cuda": _gpus()}


def _gpus() -> list[dict[str, Any]]:
    """GPUs that torch can use: none if it was built without CUDA or the driver does not fit."""
    order_gpus_by_pci_bus()
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    found = [torch.cuda.get_device_properties(index) for index in range(count)]
    return [
        {"index": index, "name": gpu.name, "memory_bytes": gpu.total_memory}
        for index, gpu in enumerate(found)
    ]


def measure_rates(slots: int, threads: int) -> dict[str, float]:
    """FLOP/s of one slot by dtype while all slots are busy."""
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(slots)
    rates = context.Array("d", slots * len(_DTYPES))
    processes = [
        context.Process(target=_multiply, args=(slot, slots, threads, barrier, rates))
        for slot in range(slots)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        if process.exitcode:
            raise RuntimeError(f"a self-test process exited with code {process.exitcode}")
    means = {
        name: sum(rates[index * slots : (index + 1) * slots]) / slots for index, name in enumerate(_DTYPES)
    }
    return means | {"fp8": means["bf16"]}


def _multiply(slot: int, slots: int, threads: int, barrier: Barrier, rates: SynchronizedArray[float]) -> None:
    torch.set_num_threads(threads)
    for index, dtype in enumerate(_DTYPES.values()):
        barrier.wait()
        rates[index * slots + slot] = max(_fastest_rate(size, dtype) for size in _SIZES)
        barrier.wait()


def _fastest_rate(size: int, dtype: torch.dtype) -> float:
    """FLOP/s of the fastest of many products of square matrices, after a warm-up."""
    left, right = torch.randn(2, size, size).to(dtype)
    left @ right
    fastest_seconds = float("inf")
    end = time.perf_counter() + _SECONDS_PER_SIZE
    while (began := time.perf_counter()) < end:
        left @ right
        fastest_seconds = min(fastest_seconds, time.perf_counter() - began)
    return 2 * size**3 / fastest_seconds
