"""``stages: auto``: choosing the number of layers of each pipeline stage from the measured speed of its ranks.

All ranks multiply matrices of the model's size at the same time, as in training, and exchange their speed and their
free memory. Each then solves the same small problem (``trainwright.planner.stage_partition``) with the same numbers and
finds the same result. Ranks of one stage, which differ in data or tensor, wait for each other. So the slowest rank
counts, and the one with the least memory.

    owns   nothing        moves   two numbers per rank, once
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

import torch
from torch import Tensor

from trainwright.contracts.precision_spec import PrecisionKind
from trainwright.contracts.run_spec import RunSpec
from trainwright.planner.compilation import compiles
from trainwright.planner.plan import auto_stages
from trainwright.planner.stage_partition import DoesNotFitError, RankCapacity
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.runtime.errors import BadJobError

_SECONDS = 0.2
"""Two periods of the quota with which Linux throttles a process, and longer than a GPU's clocks need to
settle."""

_MEASUREMENTS = 5
"""The median counts, because short disturbances on a node do not change the speed of a rank."""

_ALIKE = 0.9
"""Speeds above this fraction of a faster rank's count as equal, since two measurements differ by as much."""

_USABLE = 0.9
"""Fraction of a GPU's free memory: the rest goes to kernels' own buffers and to fragmentation."""

_MAX_TOKENS = 4_096
_PRODUCTS_AT_ONCE = 8


class StageChoice(NamedTuple):
    """The chosen split."""

    layers: tuple[int, ...]
    """Number of layers of each stage."""

    note: str
    """Explains the choice to users."""


def choose_stages(
    spec: RunSpec, mesh: Mesh, measure: Callable[[RunSpec, torch.device], float] | None = None
) -> StageChoice:
    """Choose the layers of each stage; every rank must call this, and all get the same result.

    Args:
        measure: measures this rank's speed, in any unit common to all ranks; by default ``matmul_speed``.

    Raises:
        BadJobError: no split fits into the ranks' memory.
    """
    mesh.world.barrier()
    speed = (measure or matmul_speed)(spec, mesh.device)
    speeds, memories = _of_pipeline(mesh, speed, usable_bytes(mesh.device))
    alike = group_speeds(speeds)
    capacities = [RankCapacity(one, memory) for one, memory in zip(alike, memories, strict=True)]
    try:
        layers = auto_stages(spec, capacities, compiles(spec, mesh.device.type == "cuda"))
    except DoesNotFitError as error:
        raise BadJobError(
            f"spec.parallelism.stages: auto found no split that fits: {error}. Use more pipeline or tensor ranks, "
            "memory.recompute, or a smaller batch.micro_sequences"
        ) from error
    return StageChoice(layers, f"The stages have {', '.join(map(str, layers))} layers: {_sentence(alike)}.")


def matmul_speed(spec: RunSpec, device: torch.device) -> float:
    """FLOP/s of this rank in the largest matmul of the model's blocks, on random numbers."""
    dtype = torch.float32 if spec.precision.kind is PrecisionKind.FP32 else torch.bfloat16
    tokens = min(spec.batch.micro_sequences * spec.batch.sequence_tokens, _MAX_TOKENS)
    inner, out = spec.model.width, max(1, spec.model.feed_forward_width // spec.parallelism.tensor)
    left = torch.randn(tokens, inner, device=device).to(dtype)
    right = torch.randn(inner, out, device=device).to(dtype)
    into = left @ right
    _wait(device)
    each = 2.0 * tokens * inner * out
    return median(each / _matmul_seconds(left, right, into) for _ in range(_MEASUREMENTS))


def _matmul_seconds(left: Tensor, right: Tensor, into: Tensor) -> float:
    """Seconds of one matmul, in one measurement."""
    began, made = time.perf_counter(), 0
    while (seconds := time.perf_counter() - began) < _SECONDS:
        for _ in range(_PRODUCTS_AT_ONCE):
            torch.mm(left, right, out=into)
        _wait(left.device)
        made += _PRODUCTS_AT_ONCE
    return seconds / made


def group_speeds(speeds: Sequence[float]) -> list[float]:
    """``speeds`` as fractions of the largest; a speed that nearly equals a larger one counts as equal to it."""
    found = [0.0] * len(speeds)
    leader = 0.0
    for index in sorted(range(len(speeds)), key=lambda rank: -speeds[rank]):
        if speeds[index] < _ALIKE * leader or not leader:
            leader = speeds[index]
        found[index] = leader / max(speeds)
    return found


def _of_pipeline(mesh: Mesh, speed: float, memory: int | None) -> tuple[list[float], list[int | None]]:
    """Speed and memory of each pipeline rank: the minimum over its data and tensor ranks."""
    least = torch.full((2, mesh.degrees.pipeline), torch.inf, dtype=torch.float64, device=mesh.device)
    least[0, mesh.coordinates.pipeline] = speed
    if memory is not None:
        least[1, mesh.coordinates.pipeline] = memory
    speeds, memories = (-mesh.world.all_reduce_max(-least)).tolist()
    return speeds, [None if memory == float("inf") else int(memory) for memory in memories]


def usable_bytes(device: torch.device) -> int | None:
    """Usable memory of a GPU. None on a CPU, where ranks share the node's memory."""
    if device.type != "cuda":
        return None
    free, _ = torch.cuda.mem_get_info(device)
    return int(_USABLE * free)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _sentence(alike: Sequence[float]) -> str:
    slow = [(index, speed) for index, speed in enumerate(alike) if speed < 1]
    if not slow:
        return "all pipeline ranks are equally fast"
    slow_ranks = ", ".join(f"rank {index} at {speed:.0%}" for index, speed in slow)
    return f"pipeline {slow_ranks} of the fastest rank's speed"
