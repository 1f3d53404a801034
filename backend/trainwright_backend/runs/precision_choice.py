"""Choosing the values for `auto` in a spec's `precision`, when a run is checked or submitted. No other module does.

The stored spec has the choice, so every attempt computes the same on every node. An event of the run gives the reason.
On CPUs the choice follows the peaks that the nodes' self-tests measured: processors without bfloat16 instructions are
faster in float32.
"""

from dataclasses import dataclass

from trainwright.contracts.parallelism_spec import Device
from trainwright.contracts.precision_spec import CompileKind, PrecisionKind
from trainwright.contracts.run_spec import RunSpec
from trainwright.planner.compilation import compiles
from trainwright.planner.flops import training_flops
from trainwright_backend.core.db import Read
from trainwright_backend.runs.joined_nodes import JoinedNode, named, nodes_for

MIN_GAIN = 1.5
"""bfloat16 matmuls must be faster by this factor, because casts and the arithmetic between matmuls use up some of the
gain."""
TYPICAL_FRACTION_OF_PEAK = 0.3
COMPILATION_SECONDS = 60.0
COMPILATION_GAIN = 0.2
"""Part of a step's time that compilation is assumed to save on a CPU; `make bench ONLY=compile` measures it."""


@dataclass(frozen=True)
class PrecisionChoice:
    """A spec without `auto`, and the reasons for its choices, as sentences."""

    spec: RunSpec
    reasons: tuple[str, ...] = ()


def choose_precision(session: Read, spec: RunSpec) -> PrecisionChoice:
    """Choose the number format, and whether not to compile, of ``spec``, whose device and data are resolved."""
    nodes = nodes_for(session, spec) if spec.resources.device is Device.CPU else []
    precision, reasons = spec.precision, []
    if precision.kind is PrecisionKind.AUTO:
        kind, reason = _kind(spec, nodes)
        precision = precision.model_copy(update={"kind": kind})
        reasons.append(f"precision auto: {kind}, {reason}")
    seconds = _seconds(spec, precision.kind, nodes)
    would_compile = precision.compile is CompileKind.AUTO and compiles(
        spec.model_copy(update={"precision": precision}), cuda=False
    )
    if would_compile and seconds is not None and seconds * COMPILATION_GAIN < COMPILATION_SECONDS:
        precision = precision.model_copy(update={"compile": CompileKind.OFF})
        reasons.append(
            f"compile auto: off, since the run takes about {max(1, round(seconds / 60))} min and compilation 1 min"
        )
    return PrecisionChoice(spec.model_copy(update={"precision": precision}), tuple(reasons))


def _kind(spec: RunSpec, nodes: list[JoinedNode]) -> tuple[PrecisionKind, str]:
    if spec.resources.device is Device.CUDA:
        return PrecisionKind.BF16, "as on all GPUs"
    rates = {
        node.name: (node.cpu_peak.rate(PrecisionKind.FP32), node.cpu_peak.rate(PrecisionKind.BF16))
        for node in nodes
        if node.cpu_peak is not None
    }
    slow = [
        node
        for node in nodes
        if (found := rates.get(node.name)) is None or not _is_faster(fp32=found[0], bf16=found[1])
    ]
    if not nodes:
        return PrecisionKind.FP32, "since no node has joined whose speed is known"
    if slow:
        return PrecisionKind.FP32, f"since bfloat16 is not known to be faster on {named(slow)}"
    fp32, bf16 = rates[nodes[0].name]
    assert fp32 is not None and bf16 is not None
    figures = f"{bf16 / 1e9:,.0f} GFLOP/s in bfloat16 and {fp32 / 1e9:,.0f} in float32"
    return PrecisionKind.BF16, f"since a slot of {nodes[0].name} computes {figures}"


def _is_faster(fp32: float | None, bf16: float | None) -> bool:
    return fp32 is not None and bf16 is not None and bf16 >= MIN_GAIN * fp32


def _seconds(spec: RunSpec, kind: PrecisionKind, nodes: list[JoinedNode]) -> float | None:
    """About how long the run takes on the fastest of ``nodes``; None if no peak is known."""
    rates = [node.cpu_peak.rate(kind) for node in nodes if node.cpu_peak is not None]
    fastest = max((rate for rate in rates if rate is not None), default=None)
    if fastest is None:
        return None
    return training_flops(spec) / spec.degrees.ranks / (TYPICAL_FRACTION_OF_PEAK * fastest)
