"""The self-test: which devices this machine has, and how fast its CPU multiplies matrices.

No data sheet gives the peak of a share of a CPU's cores, so it is measured: every thread of every slot multiplies
matrices on its own, all at the same time. Matmuls are timed in the CPU time of their thread, which stops while another
process uses the core, so the result does not depend on other load. (Threads that share a matmul spin while they wait
for each other, which CPU time counts, so each thread has its own matmul.) The best of many samples over several sizes
counts, because disturbances only make a sample slower.

CPUs have no FP8 matmuls: the trainer converts the codes to bfloat16 and multiplies those (``fp8.compute.matmul``), so
bfloat16's peak is also FP8's. The conversion takes time in proportion to the operands' size, which is little compared
with the matmul.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from multiprocessing.sharedctypes import Synchronized, SynchronizedArray
from multiprocessing.synchronize import Barrier
from typing import Any

import torch

from trainwright_trainer.observe.memory import cpu_name
from trainwright_trainer.runtime.devices import order_gpus_by_pci_bus

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
_SIZES = (256, 512, 1_024)
_CPU_SECONDS_PER_SIZE = 0.15
_CPU_SECONDS_PER_SAMPLE = 0.02
"""Far above the resolution of any clock of CPU time, and above the noise of one small matmul."""
_MAX_MATMUL_SECONDS = 0.3
"""Larger sizes are not measured after one whose matmul took longer: their rate is not higher."""
_MAX_SECONDS = 10.0
"""Wall time for one dtype. On a busy machine this leaves fewer samples, but always some."""


def measure_devices(slots: int) -> dict[str, Any]:
    """Measurements for ``slots`` CPU slots, and the GPUs that ranks can use, numbered like their slots.

    A node without CPU slots needs no measurement of its CPU; its rates are 0, which means unknown.
    """
    threads = max(1, len(os.sched_getaffinity(0)) // max(1, slots))
    rates = measure_rates(slots, threads)
    cpu = {"name": cpu_name(), "slots": slots, "threads_per_slot": threads, "flops_per_second": rates}
    return {"cpu": cpu, "cuda": _gpus()}


def _gpus() -> list[dict[str, Any]]:
    """GPUs that torch can use: none if it was built without CUDA or the driver does not fit."""
    order_gpus_by_pci_bus()
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    found = [torch.cuda.get_device_properties(index) for index in range(count)]
    return [
        {
            "index": index,
            "name": gpu.name,
            "memory_bytes": gpu.total_memory,
            "capability": f"{gpu.major}.{gpu.minor}",
        }
        for index, gpu in enumerate(found)
    ]


def measure_rates(slots: int, threads: int) -> dict[str, float]:
    """FLOP/s of one slot by dtype while all slots are busy, independently of other processes; 0 without slots."""
    if slots == 0:
        return dict.fromkeys((*_DTYPES, "fp8"), 0.0)
    count = slots * threads
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(count)
    unfinished = context.Value("i", 0)
    rates = context.Array("d", count * len(_DTYPES))
    processes = [
        context.Process(target=_multiply, args=(number, count, barrier, unfinished, rates))
        for number in range(count)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        if process.exitcode:
            raise RuntimeError(f"a self-test process exited with code {process.exitcode}")
    cores_per_thread = min(1.0, len(os.sched_getaffinity(0)) / count)
    scale = threads * cores_per_thread / count
    means = {
        name: scale * sum(rates[index * count : (index + 1) * count]) for index, name in enumerate(_DTYPES)
    }
    return means | {"fp8": means["bf16"]}


def _multiply(
    number: int,
    count: int,
    barrier: Barrier,
    unfinished: Synchronized[int],
    rates: SynchronizedArray[float],
) -> None:
    torch.set_num_threads(1)
    for index, dtype in enumerate(_DTYPES.values()):
        unfinished.value = count
        barrier.wait()
        deadline = time.perf_counter() + _MAX_SECONDS
        rates[index * count + number] = _best_rate(dtype, deadline)
        with unfinished.get_lock():
            unfinished.value -= 1
        while unfinished.value > 0 and time.perf_counter() < deadline:
            _best_rate(dtype, 0.0)  # keeps the core, its clock and its neighbours as busy as for the others
        barrier.wait()


def _best_rate(dtype: torch.dtype, deadline: float) -> float:
    """FLOP/s of the best sample over all sizes and both layouts of the second factor; one sample each after
    ``deadline``, in seconds of ``time.perf_counter``."""
    best = 0.0
    for size in _SIZES:
        left, right = torch.randn(2, size, size).to(dtype)
        for factor in (right, right.T):
            best = max(best, _best_of_samples(left, factor, deadline))
        if 2 * size**3 / best > _MAX_MATMUL_SECONDS:
            break
    return best


def _best_of_samples(left: torch.Tensor, right: torch.Tensor, deadline: float) -> float:
    """FLOP/s of ``left @ right`` in this thread's CPU time, after a warm-up."""
    flops = 2 * left.shape[0] ** 3
    left @ right
    best = spent = 0.0
    while not best or (spent < _CPU_SECONDS_PER_SIZE and time.perf_counter() < deadline):
        matmuls = 0
        began, seconds = time.thread_time(), 0.0
        while seconds < _CPU_SECONDS_PER_SAMPLE:
            left @ right
            matmuls += 1
            seconds = time.thread_time() - began
        best = max(best, matmuls * flops / seconds)
        spent += seconds
    return best
