"""FLOP/s of large matmuls alone: an upper bound for any training on this device."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor

from tests.benchmarks.trainer.timed_training import device
from trainwright_trainer.fp8.compute.formats import E4M3
from trainwright_trainer.fp8.compute.matmul import Operand, scaled_matmul

_ROUNDS = 5


def gemm_ceilings(size: int, repeats: int) -> dict[str, float]:
    """FLOP/s of square matmuls of normal values, by dtype: bf16, and fp8 with one scale per tensor."""
    left, right = torch.randn(2, size, size, device=device(), dtype=torch.bfloat16)
    one = torch.ones((), device=device())
    a, b = Operand(left.to(E4M3), one), Operand(right.to(E4M3), one)
    matmuls: dict[str, Callable[[], Tensor]] = {
        "bf16": lambda: left @ right,
        "fp8": lambda: scaled_matmul(a, b, torch.bfloat16, fast_accumulation=True),
    }
    flops = 2 * size**3
    return {name: flops / _seconds(matmul, repeats) for name, matmul in matmuls.items()}


def _seconds(matmul: Callable[[], Tensor], repeats: int) -> float:
    """Median time of one matmul over all rounds but the first, which warms up."""
    times = []
    for _ in range(_ROUNDS + 1):
        synchronize()
        began = time.perf_counter()
        for _ in range(repeats):
            matmul()
        synchronize()
        times.append((time.perf_counter() - began) / repeats)
    return median(times[1:])


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
