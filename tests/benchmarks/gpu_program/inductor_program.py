"""The program that Inductor writes for a graph: its launches, and the bytes of each kernel.

Bytes are those that Inductor counts for a kernel: each buffer once, even if a kernel passes over it several times, as
far as its indices reach. A second pass of a reduction is assumed to find its row in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from torch._inductor.dependencies import MemoryDep
from torch._inductor.graph import GraphLowering
from torch.fx import GraphModule

from tests.benchmarks.gpu_program.h200 import has_triton

_OURS = ("trainwright.cast_and_transpose", "trainwright.transpose_codes")


@dataclass(frozen=True)
class Kernel:
    """One launch."""

    name: str
    """The operators fused into it, or the library function."""

    bytes: int
    """Read and written."""

    library: bool
    """A matmul or attention, in contrast to element-wise kernels, whether Inductor's or ours."""

    scattered_bytes: int = 0
    """The part of ``bytes`` that is stored far apart, one element at a time: in a kernel that reduces rows, the
    transpose of what it computes."""


class _Lowered(BaseException):
    """Ends a compilation once its program is written. It is not an ``Exception``, so torch does not handle it."""

    def __init__(self, kernels: list[Kernel]) -> None:
        self.kernels = kernels


def lower(compile_inner: Any, gm: GraphModule, inputs: list[Any], how: dict[str, Any]) -> list[Kernel]:
    """Let Inductor write its program for the graph ``gm``, which it changes; empty without Triton."""
    if not has_triton():
        return []

    def stop(graph: GraphLowering) -> Any:
        graph.codegen()
        raise _Lowered([_kernel(node, graph) for node in graph.scheduler.nodes if _is_launch(node)])

    try:
        with patch.object(GraphLowering, "compile_to_module", stop):
            compile_inner(gm, inputs, **how)
    except _Lowered as lowered:
        return lowered.kernels
    raise AssertionError("the graph was not lowered")


def _is_launch(node: Any) -> bool:
    from torch._inductor.scheduler import NopKernelSchedulerNode

    if isinstance(node, NopKernelSchedulerNode):
        return False
    return not (node.is_extern() and type(node.node).__name__ == "MultiOutput")


def _kernel(node: Any, graph: GraphLowering) -> Kernel:
    if node.is_extern():
        name = getattr(node.node, "python_kernel_name", None) or str(
            getattr(node.node, "op_overload", node.node)
        )
        return Kernel(
            name, node.get_read_write_buffers_sizes(), library=not any(one in name for one in _OURS)
        )
    name = torch._inductor.utils.get_fused_kernel_name(node.get_nodes(), "original_aten")
    return Kernel(name, node.get_read_write_buffers_sizes(), False, _scattered_bytes(node, graph))


def _scattered_bytes(node: Any, graph: GraphLowering) -> int:
    """A kernel without a reduction is not counted: Inductor gives it tiles, and stores them along either dim."""
    if not node.is_reduction():
        return 0
    parts = [part.read_writes for part in node.get_nodes() if not part.is_reduction()]
    return sum(
        math.prod(map(int, dep.size)) * graph.get_dtype(dep.name).itemsize
        for part in parts
        for dep in part.writes
        if _is_scattered(dep, part.reads)
    )


def _is_scattered(store: Any, loads: Iterable[Any]) -> bool:
    """Whether the innermost loop, which loads neighbors, stores them apart. Inductor merges and renames the loops of each
    access by itself, so only the innermost can be compared.
    """
    if not isinstance(store, MemoryDep) or _steps_to_neighbors(store):
        return False
    elements = math.prod(store.size)
    return any(
        _steps_to_neighbors(load)
        for load in loads
        if isinstance(load, MemoryDep) and math.prod(load.size) == elements
    )


def _steps_to_neighbors(access: MemoryDep) -> bool:
    """Whether the innermost loop steps from an element to its neighbor in memory."""
    return not access.var_names or bool(access.index.coeff(access.var_names[-1]) == 1)
