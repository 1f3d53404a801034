"""One optimizer step of the real trainer on tensors without memory, with a record of everything that it would launch
on a GPU.

The training is built by the trainer's own passes and makes one step, micro batch by micro batch, with all layers.
Compiled functions are traced, split into forward and backward, and lowered by Inductor; their results are tensors without
memory again. Operators outside compiled functions are recorded one by one. So the record is the step's program: for each
compiled graph its kernels and how often it runs, and each eager operator.
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch._dynamo.utils import counters
from torch._inductor import compile_fx as inductor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import GraphModule, Node
from torch.nn.attention import SDPBackend

from tests.benchmarks.gpu_program.inductor_program import Kernel, lower
from trainwright.contracts.run_spec import RunSpec
from trainwright_trainer.distributed.mesh import single_rank_mesh
from trainwright_trainer.model import attention
from trainwright_trainer.training.build import build_engine
from trainwright_trainer.training.materialize import materialize
from trainwright_trainer.training.model_passes import build_parts

DEVICE = torch.device("cuda", 0)

_READS = {"aten::_local_scalar_dense", "aten::equal", "aten::nonzero", "aten::is_nonzero"}
"""Operators for which the host waits."""

_MATMULS = {"aten::mm", "aten::addmm", "aten::addmm_", "aten::mm.out", "aten::bmm", "aten::_scaled_mm"}
_MATMULS |= {"aten::addmm.dtype_out"}


@dataclass
class Graph:
    """One compiled graph."""

    function: str
    """The outermost function that was compiled: `forward` for a block."""

    backward: bool
    graph: GraphModule
    kernels: list[Kernel]
    """Empty if Triton is not installed: then nothing is lowered."""

    runs: int = 0
    """In the step."""


@dataclass
class EagerOperator:
    """Calls of one operator outside compiled graphs."""

    calls: int = 0
    bytes: int = 0
    """Read and written."""

    flops: int = 0


@dataclass
class TracedStep:
    """Everything one step would launch."""

    graphs: list[Graph] = field(default_factory=list)
    eager: dict[str, EagerOperator] = field(default_factory=dict)
    host_syncs: int = 0
    graph_breaks: int = 0

    def graph(self, function: str, backward: bool = False) -> Graph:
        (found,) = (one for one in self.graphs if (one.function, one.backward) == (function, backward))
        return found


def trace_step(spec: RunSpec) -> TracedStep:
    """Build the training of ``spec`` on the simulated device, and record one step of it. See ``h200``."""
    step = TracedStep()
    mesh = single_rank_mesh(DEVICE)
    counters.clear()
    with _recording(step), _Recorder(step):
        parts = build_parts(spec, mesh, None, end_of_text=0)
        updater = materialize(parts, spec, mesh, fresh=False)
        engine = build_engine(parts, updater, spec, mesh, None)
        tokens = torch.zeros(
            spec.batch.micro_sequences, spec.batch.sequence_tokens + 1, dtype=torch.int64, device=DEVICE
        )
        updater.begin_step(1e-3)
        updater.skip()  # the first step of a run observes more than later steps
        step.eager.clear()
        step.host_syncs = 0
        batches: list[Any] = [_Batch(tokens)] * spec.accumulation_steps
        timer: Any = _Timer()
        engine.step(batches, 1e-3, timer)
        assert not updater.metrics(0), "an observing step was traced, which reads more than others"
    step.graph_breaks = sum(counters["graph_break"].values())
    return step


class _Batch:
    def __init__(self, tokens: Tensor) -> None:
        self.tokens, self.targets = tokens[:, :-1], tokens[:, 1:]

    def to(self, device: torch.device) -> _Batch:
        return self


class _Timer:
    def mark(self, timing: object) -> None:
        pass


class _Recorder(FakeTensorMode):
    """Records the operators that run outside compiled graphs."""

    def __init__(self, step: TracedStep) -> None:
        super().__init__()
        self._step = step
        self._inside = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name()
        if name in _READS:
            self._step.host_syncs += 1
            return 1.0
        if self._inside or (torch.compiler.is_compiling()):
            return super().__torch_dispatch__(func, types, args, kwargs)
        self._inside = True
        try:
            out = super().__torch_dispatch__(func, types, args, kwargs)
        finally:
            self._inside = False
        self._record(name, func, args, kwargs or {}, out)
        return out

    def _record(self, name: str, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        given = list(_tensors((*args, *kwargs.values())))
        made = list(_tensors((out,)))
        if not _launches(name, func, made):
            return
        found = self._step.eager.setdefault(name, EagerOperator())
        found.calls += 1
        if name in _MATMULS:
            a, b = given[1:3] if name.startswith("aten::addmm") else given[:2]
            found.flops += 2 * a.numel() * b.shape[-1]
        # A lookup reads rows, not the table; a copy does not read what it overwrites.
        read = made if name == "aten::embedding" else given[1:] if name == "aten::copy_" else given
        found.bytes += sum(map(_bytes, read)) + sum(map(_bytes, made))


def _launches(name: str, func: Any, made: list[Tensor]) -> bool:
    if func.is_view or (
        not made and not name.startswith(("aten::_foreach", "aten::_fused", "trainwright::"))
    ):
        return False
    return not name.startswith(
        (
            "aten::empty",
            "aten::new_empty",
            "aten::detach",
            "aten::alias",
            "aten::_unsafe_view",
            "aten::lift_fresh",
            "prim::",
        )
    )


def _bytes(tensor: Tensor) -> int:
    """Bytes of the elements in memory: an expanded tensor has fewer than its shape suggests."""
    elements = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        elements *= int(size) if stride else 1
    return elements * tensor.element_size()


def _tensors(values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            if value.device.type == "cuda":
                yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


@contextmanager
def _recording(step: TracedStep) -> Iterator[None]:
    torch._dynamo.reset()
    compile_fx = inductor.compile_fx

    def compile_graph(gm: GraphModule, inputs: list[Any], **how: Any) -> Any:
        how.pop("inner_compile", None)
        return compile_fx(gm, inputs, inner_compile=partial(_compile, step, inductor.compile_fx_inner), **how)

    def read_list(tensor: FakeTensor) -> Any:
        step.host_syncs += 1
        return _ones(tensor.shape)

    with (
        patch.object(inductor, "compile_fx", compile_graph),
        patch.object(attention, "scaled_dot_product_attention", _attend),
        patch.object(FakeTensor, "tolist", read_list),
        torch._inductor.config.patch(fx_graph_cache=False, compile_threads=1),
        torch._functorch.config.patch(enable_autograd_cache=False),
    ):
        yield


def _ones(shape: Any) -> Any:
    return 1.0 if not shape else [_ones(shape[1:]) for _ in range(shape[0])]


def _attend(q: Tensor, k: Tensor, v: Tensor, is_causal: bool, enable_gqa: bool) -> Tensor:
    """``scaled_dot_product_attention`` with the kernel that torch would choose on a GPU."""
    if _prefers_cudnn():
        return torch.ops.aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, is_causal, False)[
            0
        ]
    return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, is_causal, False)[0]


@torch.compiler.assume_constant_result
def _prefers_cudnn() -> bool:
    order = torch._C._get_sdp_priority_order()
    return order.index(SDPBackend.CUDNN_ATTENTION.value) < order.index(SDPBackend.FLASH_ATTENTION.value)


def _compile(step: TracedStep, compile_inner: Any, gm: GraphModule, inputs: list[Any], **how: Any) -> Any:
    """Record and lower the graph; the result creates outputs without memory."""
    (output,) = (node for node in gm.graph.nodes if node.op == "output")
    outputs = [node.meta["val"] if isinstance(node, Node) else None for node in output.args[0]]
    given = [node.meta["val"] for node in gm.graph.nodes if node.op == "placeholder"]
    kept = Graph(_function(gm), bool(how.get("is_backward")), copy.deepcopy(gm), [])
    step.graphs.append(kept)
    kept.kernels = lower(compile_inner, gm, inputs, how)

    return _FakeProgram(kept, given, outputs)


class _FakeProgram:
    """A compiled graph that counts its runs and creates its outputs without memory."""

    def __init__(self, graph: Graph, given: list[Any], outputs: list[Any]) -> None:
        self._graph, self._given, self._outputs = graph, given, outputs
        self._boxed_call = True
        """Tells AOTAutograd, which copies it to its wrappers, that the arguments arrive as one list."""

    def __call__(self, arguments: list[Any]) -> list[Tensor | None]:
        self._graph.runs += 1
        sizes = _symbols(self._given, arguments)
        arguments.clear()
        return [_like(value, sizes) for value in self._outputs]


def _symbols(given: list[Any], arguments: list[Any]) -> dict[Any, int]:
    """The values of the symbolic sizes of a graph's inputs in this call."""
    pairs: list[tuple[Any, Any]] = []
    for expected, actual in zip(given, arguments, strict=True):
        if isinstance(expected, torch.SymInt):
            pairs.append((expected, actual))
        elif isinstance(expected, Tensor):
            pairs += zip(expected.shape, actual.shape, strict=True)
    return {size.node.expr: int(actual) for size, actual in pairs if isinstance(size, torch.SymInt)}


def _like(value: Any, symbols: dict[Any, int]) -> Tensor | None:
    if not isinstance(value, Tensor):
        return None
    sizes, strides = (
        [int(one.node.expr.subs(symbols)) if isinstance(one, torch.SymInt) else one for one in numbers]
        for numbers in (value.shape, value.stride())
    )
    return torch.empty_strided(sizes, strides, dtype=value.dtype, device=value.device)


def _function(gm: GraphModule) -> str:
    """The outermost function of the trainer among those that the graph came from."""
    names = Counter(
        found[0]
        for node in gm.graph.nodes
        if (found := re.findall(r"trainwright_trainer/\S+, line \d+, in (\w+)", node.stack_trace or ""))
    )
    return names.most_common(1)[0][0] if names else "unknown"
