"""Figures of a traced step, and an estimate of its duration: a roofline.

Each launch takes the time of its FLOPs at a rate or of its bytes at a bandwidth, whichever is longer; launches follow
each other without gaps. The rates are those of ``RATES``; none was measured with this program. So the estimate
compares programs with each other and does not replace a measurement. It ignores gaps between launches, strides that
waste bandwidth, and the host.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from tests.benchmarks.gpu_program.traced_step import EagerOperator, Graph, TracedStep
from trainwright.contracts.run_spec import RunSpec
from trainwright.planner.flops import flops_per_token

E4M3 = torch.float8_e4m3fn
_TERA = 1e12

BANDWIDTH = 4.0e12
"""Bytes per second of element-wise kernels; a copy was measured at 4.3e12 on an H200."""

BF16_PEAK = 989e12

RATES = {
    "bf16": 780e12,
    "tensor": 1_250e12,
    "tensor, exact accumulation": 1_100e12,
    "row": 1_100e12,
    "block": 1_000e12,
    "cudnn": 500e12,
    "cudnn, backward": 440e12,
    "flash": 330e12,
    "flash, backward": 290e12,
}
"""FLOP/s on an H200: matmuls in bfloat16 (769–798 measured); matmuls in FP8 by their scaling, from published
measurements on GPUs of this generation; causal attention by kernel (Shah et al. 2024, arXiv 2407.08608, figures 5 and
6)."""

_ATTENTION = {"cudnn", "cudnn, backward", "flash", "flash, backward"}

_SHARED = (("query", "key", "value"), ("gate", "up"))
_PRODUCTS = ("query", "key", "value", "output", "gate", "up", "down")
"""The layers of a block, in the order of its forward pass."""


@dataclass(frozen=True)
class ProgramFigures:
    """The figures of one shape and precision."""

    block_launches: int
    """Kernels of one block, forward and backward."""

    block_elementwise_mb: float
    """Bytes read and written by its kernels except matmuls and attention, in 10⁶ bytes."""

    block_scattered_mb: float
    """The part of these bytes that is stored far apart, one element at a time; the estimate moves them as fast as
    others."""

    saved_bytes: float
    """Bytes saved for the backward pass, per token and layer, including the residual stream."""

    shared_input_casts: int
    """Casts of the inputs that several matmuls of a block read; 0 without FP8."""

    weight_casts: int
    """Weights that a block's forward pass casts."""

    summing_matmuls: int
    """Matmuls of a block's backward pass that add a weight gradient to its sum over micro batches."""

    scaled_matmuls: int
    """FP8 matmuls of a block; torch's meta functions accepted every one."""

    graph_breaks: int
    host_syncs: int
    step_launches: int
    step_elementwise_gb: float
    """Element-wise bytes of a step, with loss, gradient accumulation and optimizer, in 10⁹ bytes."""

    optimizer_bytes: float
    """Bytes read and written by the compiled functions of gradients and optimizer, per parameter and step."""

    attention: str
    step_ms: float
    matmuls_ms: float
    """The part of ``step_ms`` in matmuls, of blocks and head."""

    attention_ms: float
    block_elementwise_ms: float
    other_ms: float
    """The rest: loss, embedding, casts of weights, sums and casts of gradients, optimizer."""

    mfu_percent: float
    """In percent of the bfloat16 peak, for both precisions."""


def figures(step: TracedStep, spec: RunSpec, parameters: int) -> dict[str, Any]:
    """See ``ProgramFigures``."""
    forward, backward = step.graph("forward"), step.graph("forward", backward=True)
    block = [*forward.kernels, *backward.kernels]
    tokens = spec.batch.micro_sequences * spec.batch.sequence_tokens
    seconds = _step_seconds(step)
    matmuls, attention = _matmul_seconds(step, False), _matmul_seconds(step, True)
    elementwise = sum(graph.runs * _elementwise(graph) for graph in (forward, backward)) / BANDWIDTH
    flops = flops_per_token(spec.model, spec.data.tokenizer.size, spec.batch.sequence_tokens)
    return asdict(
        ProgramFigures(
            block_launches=len(block),
            block_elementwise_mb=_elementwise(forward, backward) / 1e6,
            block_scattered_mb=sum(kernel.scattered_bytes for kernel in block) / 1e6,
            saved_bytes=_saved(forward.graph) / tokens,
            shared_input_casts=shared_input_casts(forward.graph),
            weight_casts=_weight_casts(forward.graph),
            summing_matmuls=sum(map(_adds_to_a_sum, backward.graph.graph.nodes)),
            scaled_matmuls=len(list(_scaled(forward.graph))) + len(list(_scaled(backward.graph))),
            graph_breaks=step.graph_breaks,
            host_syncs=step.host_syncs,
            step_launches=sum(len(one.kernels) * one.runs for one in step.graphs)
            + sum(one.calls for one in step.eager.values()),
            step_elementwise_gb=_step_elementwise(step) / 1e9,
            optimizer_bytes=_optimizer(step) / parameters,
            attention=_attention(forward.graph),
            step_ms=seconds * 1e3,
            matmuls_ms=matmuls * 1e3,
            attention_ms=attention * 1e3,
            block_elementwise_ms=elementwise * 1e3,
            other_ms=(seconds - matmuls - attention - elementwise) * 1e3,
            mfu_percent=100 * flops * spec.tokens_per_step / seconds / BF16_PEAK,
        )
    )


def shared_input_casts(forward: GraphModule) -> int:
    """How many FP8 tensors the matmuls with a shared input read as that input; at least one for each input."""
    inputs = dict(zip(_PRODUCTS, (node.args[0] for node in _scaled(forward)), strict=False))
    return sum(len({inputs[name] for name in names if name in inputs}) for names in _SHARED)


def _weight_casts(forward: GraphModule) -> int:
    """Matrices among the graph's inputs that it casts."""
    casts = (torch.ops.prims.convert_element_type.default, torch.ops.aten._to_copy.default)
    return sum(
        node.target in casts and node.all_input_nodes[0].op == "placeholder" and _value(node).ndim == 2
        for node in forward.graph.nodes
    )


def _adds_to_a_sum(node: Node) -> bool:
    return "auto_functionalized" in str(node.target) and "add_weight_gradient" in str(node.args[0])


def _saved(forward: GraphModule) -> int:
    """Bytes of what a forward graph computes and passes on: its output, and what it saves. Inputs are other graphs'
    outputs."""
    (output,) = (node for node in forward.graph.nodes if node.op == "output")
    kept: dict[Node, int] = {}
    for node in output.args[0]:
        if isinstance(node, Node) and isinstance(node.meta["val"], Tensor):
            base = _base(node)
            if base.op != "placeholder":
                kept[base] = max(kept.get(base, 0), _memory(base.meta["val"]))
    return sum(kept.values())


def _base(node: Node) -> Node:
    """The node that allocated the memory of ``node``."""
    while isinstance(node.target, torch._ops.OpOverload) and node.target.is_view:
        (node,) = node.all_input_nodes[:1]
    return node


def _memory(tensor: Tensor) -> int:
    elements = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        elements *= int(size) if stride else 1
    return elements * tensor.element_size()


def _scaled(graph: GraphModule) -> Iterator[Node]:
    targets = (torch.ops.aten._scaled_mm.default, torch.ops.trainwright.multiply_blocks.default)
    return (node for node in graph.graph.nodes if node.target in targets)


def _attention(forward: GraphModule) -> str:
    names = " ".join(str(node.target) for node in forward.graph.nodes)
    return next((name for name in ("cudnn", "flash") if f"{name}_attention" in names), "other")


def _elementwise(*graphs: Graph) -> int:
    return sum(kernel.bytes for graph in graphs for kernel in graph.kernels if not kernel.library)


def _step_elementwise(step: TracedStep) -> int:
    eager = sum(one.bytes for one in step.eager.values() if not one.flops)
    return eager + sum(_elementwise(graph) * graph.runs for graph in step.graphs)


def _optimizer(step: TracedStep) -> int:
    compiled = sum(
        _elementwise(graph) * graph.runs
        for graph in step.graphs
        if graph.function in ("_row_amax", "quantize_rows", "_adamw_rows", "_dequantized_sum")
    )
    return compiled + sum(one.bytes for name, one in step.eager.items() if "adamw" in name)


def _step_seconds(step: TracedStep) -> float:
    elementwise = sum(graph.runs * _elementwise(graph) for graph in step.graphs)
    elementwise += sum(one.bytes for one in step.eager.values() if not one.flops)
    return elementwise / BANDWIDTH + _matmul_seconds(step, False) + _matmul_seconds(step, True)


def _matmul_seconds(step: TracedStep, attention: bool) -> float:
    """Seconds of matmuls, or of attention."""
    graphs = sum(
        graph.runs * flops / RATES[kind]
        for graph in step.graphs
        for kind, flops in _matmuls(graph.graph)
        if (kind in _ATTENTION) is attention
    )
    eager = 0.0 if attention else sum(map(_eager_matmul_seconds, step.eager.values()))
    return graphs + eager


def _eager_matmul_seconds(one: EagerOperator) -> float:
    return max(one.flops / RATES["bf16"], one.bytes / BANDWIDTH) if one.flops else 0.0


def _matmuls(graph: GraphModule) -> Iterator[tuple[str, int]]:
    """Kind of rate and FLOPs of each matmul and attention."""
    for node in graph.graph.nodes:
        name = str(node.target)
        if name in ("aten.mm.default", "aten._scaled_mm.default", "trainwright.multiply_blocks.default"):
            a, made = node.args[0].meta["val"], node.meta["val"]
            yield _kind(node), 2 * a.shape[1] * made.numel()
        elif _adds_to_a_sum(node):
            yield "bf16", 2 * _value(node.kwargs["dy_MN"]).numel() * _value(node.kwargs["x_MK"]).shape[1]
        elif "_scaled_dot_product" in name:
            yield _attention_work(node, name)


def _value(argument: object) -> Tensor:
    assert isinstance(argument, Node)
    value = argument.meta["val"]
    assert isinstance(value, Tensor)
    return value


def _kind(node: Node) -> str:
    name = str(node.target)
    if name == "aten.mm.default":
        return "bf16"
    if "multiply_blocks" in name:
        return "block"
    if _value(node.args[2]).numel() > 1:
        return "row"
    fast = node.kwargs.get("use_fast_accum", len(node.args) > 7 and node.args[7])
    return "tensor" if fast else "tensor, exact accumulation"


def _attention_work(node: Node, name: str) -> tuple[str, int]:
    """Two matmuls forward, five backward; the causal mask halves each."""
    kind = "cudnn" if "cudnn" in name else "flash"
    backward = "backward" in name
    query = _value(node.args[1 if backward else 0])
    batch, heads, tokens, features = query.shape
    matmul = 2 * batch * heads * tokens * tokens * features // 2
    return (f"{kind}, backward", 5 * matmul) if backward else (kind, 2 * matmul)
