"""The checks of a node that is suspected to be faulty: whether its memory keeps written values, whether matmuls are
repeatable, and whether its GPUs exchange data unchanged.

``process.device_measurement`` measures how fast the CPU is, and the agent compares that with earlier measurements. Connections
to other nodes are tested by the agents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from trainwright_trainer.runtime.devices import order_gpus_by_pci_bus

_CPU_BYTES = 256 * 2**20
_GPU_FRACTION = 0.5
"""Fraction of a GPU's free memory that is tested."""
_BLOCK_BYTES = 64 * 2**20
_PRODUCT_SIZE = 1_024
_PRODUCTS = 10
_EXCHANGED_BYTES = 64 * 2**20
_SEED = 4711
_MAX_DETAIL_LENGTH = 500


def check_health() -> list[dict[str, Any]]:
    """Name, result and detail of each check."""
    order_gpus_by_pci_bus()
    gpus = [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    checks: list[tuple[str, Callable[[], str]]] = []
    for device in (torch.device("cpu"), *gpus):
        checks.append((f"memory of {device}", partial(check_memory, device)))
        checks.append((f"matmuls on {device}", partial(check_matmuls, device)))
    for index, source in enumerate(gpus[:-1]):
        checks.append(
            (f"{source} to later GPUs and back", partial(check_exchanges, source, gpus[index + 1 :]))
        )
    return [_run(name, check) for name, check in checks]


def check_memory(device: torch.device) -> str:
    """The error of values that were written to the device's memory and read again; empty if there is none."""
    blocks = list(written_blocks(device))
    for number, block in enumerate(blocks):
        wrong = int((block != pattern(number, device)).sum())
        if wrong:
            return f"{wrong} of {block.numel()} values in block {number} had changed"
    return ""


def check_matmuls(device: torch.device) -> str:
    """The error of matmuls of the same matrices; empty if all are equal bit by bit and near the exact result."""
    generator = torch.Generator().manual_seed(_SEED)
    left, right = torch.randn(2, _PRODUCT_SIZE, _PRODUCT_SIZE, generator=generator).to(device)
    first = left @ right
    for number in range(2, _PRODUCTS + 1):
        if not torch.equal(left @ right, first):
            return f"matmul {number} of the same matrices differed from the first"
    exact = left[:8].double() @ right.double()
    # Rounding of float32 sums of 1,024 matmuls of normal values stays below 1e-3; TF32 below 0.2.
    error = float((first[:8].double() - exact).abs().max())
    return f"a matmul was wrong by {error:.3g}" if error > 0.5 else ""


def check_exchanges(source: torch.device, targets: Sequence[torch.device]) -> str:
    """The error of data that was sent to each of ``targets`` and back; empty if there is none. This is one check for
    all targets, because many GPUs have too many pairs to report."""
    problems = ((target, check_exchange(source, target)) for target in targets)
    return "; ".join(f"{target}: {problem}" for target, problem in problems if problem)


def check_exchange(source: torch.device, target: torch.device) -> str:
    """The error of data that was sent to another device and back; empty if there is none."""
    sent = pattern(0, source)[: _EXCHANGED_BYTES // 8]
    returned = sent.to(target).to(source)
    return "" if torch.equal(sent, returned) else "the data came back changed"


def written_blocks(device: torch.device) -> Iterator[Tensor]:
    """The blocks that are written to most of the free memory of a device, one after the other."""
    size = _CPU_BYTES
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        size = int(free * _GPU_FRACTION)
    for number in range(size // _BLOCK_BYTES):
        yield pattern(number, device)


def pattern(number: int, device: torch.device) -> Tensor:
    """A block of 64-bit values in which each bit takes both values."""
    values = torch.arange(_BLOCK_BYTES // 8, dtype=torch.int64, device=device)
    return (values + number * (_BLOCK_BYTES // 8)) * 0x1E3779B97F4A7C15


def _run(name: str, check: Callable[[], str]) -> dict[str, Any]:
    try:
        problem = check()
    except (RuntimeError, MemoryError) as error:  # what torch raises for broken and missing devices
        problem = f"{type(error).__name__}: {error}"
    return {"name": name, "passed": not problem, "detail": problem[:_MAX_DETAIL_LENGTH]}
