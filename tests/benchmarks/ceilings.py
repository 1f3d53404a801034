"""The rate of large products alone: what no training on this device can exceed."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor

from tests.benchmarks.trial import device
from trainwright_trainer.fp8.formats import E4M3
from trainwright_trainer.fp8.products import Operand, multiply

_ROUNDS = 5


def gemm_ceilings(size: int, repeats: int) -> dict[str, float]:
    """FLOP/s of products of square matrices of normal numbers, by dtype: bf16, and fp8 with a scale a tensor."""
    left, right = torch.randn(2, size, size, device=device(), dtype=torch.bfloat16)
    one = torch.ones((), device=device())
    a, b = Operand(left.to(E4M3), one), Operand(right.to(E4M3), one)
    products: dict[str, Callable[[], Tensor]] = {
        "bf16": lambda: left @ right,
        "fp8": lambda: multiply(a, b, torch.bfloat16, fast_accumulation=True),
    }
    flops = 2 * size**3
    return {name: flops / _seconds(product, repeats) for name, product in products.items()}


def _seconds(product: Callable[[], Tensor], repeats: int) -> float:
    """Median over rounds of the time of one product, after one round that warms up."""
    times = []
    for _ in range(_ROUNDS + 1):
        synchronize()
        began = time.perf_counter()
        for _ in range(repeats):
            product()
        synchronize()
        times.append((time.perf_counter() - began) / repeats)
    return median(times[1:])


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
