"""One kernel for many element-wise operations, where there is a compiler for the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def fused(function: Callable[P, R], device: torch.device) -> Callable[P, R]:
    """``function`` as one or two kernels on a GPU. On a CPU as it is: work is given to it in what the cache holds.

    Sizes are symbols, so that buckets and chunks of all lengths share one compilation.
    """
    return torch.compile(function, dynamic=True) if device.type == "cuda" else function
