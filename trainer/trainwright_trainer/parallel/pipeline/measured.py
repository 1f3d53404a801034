"""``stages: auto``: how many layers each stage of a pipeline gets, by what its ranks can do.

All ranks multiply matrices of the model's size at the same time, as they will in training, and tell each other how fast they
were and how much memory they have. Each then solves the same small problem (``trainwright.planner.split``) with the same
numbers and finds the same answer. Ranks of one stage, which differ in data or tensor, work in step: the slowest counts, and
the one with least memory.

    owns   nothing        moves   two numbers a rank, once
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
from trainwright.planner.compiling import compiles
from trainwright.planner.plan import auto_stages
from trainwright.planner.split import DoesNotFitError, Holder
from trainwright_trainer.ends import BadJobError
from trainwright_trainer.mesh import Mesh

_SECONDS = 0.2
"""Two periods of the quota with which Linux slows a process down, and more than a GPU's clocks need to settle."""

_MEASUREMENTS = 5
"""Of which the median counts: what a node does besides for a moment is not how fast a rank will be."""

_ALIKE = 0.9
"""Of a faster rank's speed: what is not slower than this counts as equal, for two measurements differ by as much."""

_USABLE = 0.9
"""Of a GPU's free memory: the rest goes to kernels' own buffers and to gaps between tensors."""

_MOST_TOKENS = 4_096
_PRODUCTS_AT_ONCE = 8


class Chosen(NamedTuple):
    """What was found."""

    layers: tuple[int, ...]
    """Of each stage."""

    remark: str
    """For people."""


def choose_stages(
    spec: RunSpec, mesh: Mesh, measure: Callable[[RunSpec, torch.device], float] | None = None
) -> Chosen:
    """Layers of each stage; every rank must ask, and all get the same answer.

    Args:
        measure: this rank's speed, in any unit that is one for all; that of a product when left out.

    Raises:
        BadJobError: no split fits into the ranks' memory.
    """
    mesh.world.barrier()
    speed = (measure or product_speed)(spec, mesh.device)
    speeds, memories = _of_pipeline(mesh, speed, _free_bytes(mesh.device))
    alike = alike_speeds(speeds)
    holders = [Holder(one, memory) for one, memory in zip(alike, memories, strict=True)]
    try:
        layers = auto_stages(spec, holders, compiles(spec, mesh.device.type == "cuda"))
    except DoesNotFitError as error:
        raise BadJobError(
            f"spec.parallelism.stages: auto found no split that fits: {error}. Use more pipeline or tensor ranks, "
            "memory.recompute, or a smaller batch.micro_sequences"
        ) from error
    return Chosen(layers, f"Stages hold {', '.join(map(str, layers))} layers: {_sentence(alike)}.")


def product_speed(spec: RunSpec, device: torch.device) -> float:
    """FLOP/s of this rank in the largest product of the model's blocks, on random numbers."""
    dtype = torch.float32 if spec.precision.kind is PrecisionKind.FP32 else torch.bfloat16
    tokens = min(spec.batch.micro_sequences * spec.batch.sequence_tokens, _MOST_TOKENS)
    inner, out = spec.model.width, max(1, spec.model.hidden // spec.parallelism.tensor)
    left = torch.randn(tokens, inner, device=device).to(dtype)
    right = torch.randn(inner, out, device=device).to(dtype)
    into = left @ right
    _wait(device)
    each = 2.0 * tokens * inner * out
    return median(each / _product_seconds(left, right, into) for _ in range(_MEASUREMENTS))


def _product_seconds(left: Tensor, right: Tensor, into: Tensor) -> float:
    """Of one product, in one measurement."""
    began, made = time.perf_counter(), 0
    while (seconds := time.perf_counter() - began) < _SECONDS:
        for _ in range(_PRODUCTS_AT_ONCE):
            torch.mm(left, right, out=into)
        _wait(left.device)
        made += _PRODUCTS_AT_ONCE
    return seconds / made


def alike_speeds(speeds: Sequence[float]) -> list[float]:
    """``speeds`` as fractions of the largest, where each that nearly equals a larger one counts as that."""
    found = [0.0] * len(speeds)
    leader = 0.0
    for place in sorted(range(len(speeds)), key=lambda one: -speeds[one]):
        if speeds[place] < _ALIKE * leader or not leader:
            leader = speeds[place]
        found[place] = leader / max(speeds)
    return found


def _of_pipeline(mesh: Mesh, speed: float, memory: int | None) -> tuple[list[float], list[int | None]]:
    """Speed and memory of each pipeline rank: the least of its data and tensor ranks."""
    least = torch.full((2, mesh.degrees.pipeline), torch.inf, dtype=torch.float64, device=mesh.device)
    least[0, mesh.place.pipeline] = speed
    if memory is not None:
        least[1, mesh.place.pipeline] = memory
    speeds, memories = (-mesh.world.max(-least)).tolist()
    return speeds, [None if one == float("inf") else int(one) for one in memories]


def _free_bytes(device: torch.device) -> int | None:
    """On a GPU what is there to use; a CPU's ranks share the node's memory, of which nobody has a part of its own."""
    if device.type != "cuda":
        return None
    free, _ = torch.cuda.mem_get_info(device)
    return int(_USABLE * free)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _sentence(alike: Sequence[float]) -> str:
    slow = [(place, speed) for place, speed in enumerate(alike) if speed < 1]
    if not slow:
        return "all ranks of the pipeline were measured to be as fast as each other"
    told = ", ".join(f"rank {place} at {speed:.0%}" for place, speed in slow)
    return f"of the fastest one's speed, pipeline {told}"
