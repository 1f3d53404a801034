"""Whether blocks of a run are compiled, as far as its spec says: one rule for the trainer, its memory and its plan.

What the rule does not know is whether the node has a compiler; that the trainer sees when it starts.
"""

from __future__ import annotations

from trainwright.contracts.parallelism_spec import EngineKind
from trainwright.contracts.precision_spec import CompileKind, PrecisionKind
from trainwright.contracts.run_spec import RunSpec
from trainwright.planner.flops import flops_per_token

_WORTH_FLOPS_PER_RANK = 1e14
"""What a thread of a CPU computes in about ten minutes of bfloat16, of which compilation takes half a one."""


def compiles(spec: RunSpec, cuda: bool) -> bool:
    """Whether blocks are compiled.

    `auto` does so on GPUs always, on CPUs in long runs in bfloat16. It looks at the spec and not at threads or clocks, so
    that a run that resumes on another node decides as before and goes on bit for bit; and float32 on a CPU stays equal to
    a bare loop.
    """
    return _asked(spec, cuda) and _hindrance(spec) is None


def left_uncompiled(spec: RunSpec, cuda: bool) -> str | None:
    """Why blocks that would be compiled are not, and what to choose for that; None where nothing hinders it."""
    return _hindrance(spec) if _asked(spec, cuda) else None


def _asked(spec: RunSpec, cuda: bool) -> bool:
    kind = spec.precision.compile
    return kind is CompileKind.ON or (kind is CompileKind.AUTO and (cuda or _worth_on_cpu(spec)))


def _hindrance(spec: RunSpec) -> str | None:
    parallelism = spec.parallelism
    if parallelism.schedule.is_zero_bubble:
        return (
            f"schedule {parallelism.schedule} makes each backward pass in two halves, and a compiled one is whole; "
            "schedules 1f1b and interleaved are compiled"
        )
    if parallelism.tensor_chunks > 1:
        return "a graph cannot hold a chunk that is under way; parallelism.tensor_chunks 1 is compiled"
    if parallelism.engine is EngineKind.DEEPSPEED and parallelism.zero_stage == 3:
        return (
            "DeepSpeed lets weights come and go within a block at zero_stage 3; "
            "zero_stage 2 and engine native are compiled"
        )
    return None


def _worth_on_cpu(spec: RunSpec) -> bool:
    tokens = spec.schedule.steps * spec.tokens_per_step
    flops = tokens * flops_per_token(spec.model, spec.data.tokenizer.size, spec.batch.sequence_tokens)
    return spec.precision.kind is PrecisionKind.BF16 and flops / spec.degrees.ranks >= _WORTH_FLOPS_PER_RANK
