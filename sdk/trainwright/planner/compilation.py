"""The rule for whether the blocks of a run are compiled, for the trainer and the planner. It depends only on the spec.

The rule does not check whether the node has a compiler; the trainer does when it starts.
"""

from __future__ import annotations

from trainwright.contracts.parallelism_spec import EngineKind
from trainwright.contracts.precision_spec import CompileKind, PrecisionKind
from trainwright.contracts.run_spec import RunSpec
from trainwright.planner.flops import flops_per_token

_WORTH_FLOPS_PER_RANK = 1e14
"""About ten minutes of bfloat16 on a CPU thread, compared with half a minute of compilation."""


def compiles(spec: RunSpec, cuda: bool) -> bool:
    """Whether blocks are compiled.

    `auto` compiles on GPUs, and on CPUs for long bfloat16 runs. It depends only on the spec, not on threads or clocks, so a run
    that resumes on another node decides the same way and continues bit by bit. On CPUs, float32 stays equal to a plain loop.
    """
    return _requested(spec, cuda) and _obstacle(spec) is None


def why_not_compiled(spec: RunSpec, cuda: bool) -> str | None:
    """Why blocks that should be compiled are not, and what to choose instead; None if they are, or should not be."""
    return _obstacle(spec) if _requested(spec, cuda) else None


def _requested(spec: RunSpec, cuda: bool) -> bool:
    kind = spec.precision.compile
    return kind is CompileKind.ON or (kind is CompileKind.AUTO and (cuda or _worth_on_cpu(spec)))


def _obstacle(spec: RunSpec) -> str | None:
    parallelism = spec.parallelism
    if parallelism.schedule.is_zero_bubble:
        return (
            f"schedule {parallelism.schedule} splits each backward pass in two, which compiled blocks cannot; "
            "schedules 1f1b and interleaved are compiled"
        )
    if parallelism.tensor_chunks > 1:
        return "compiled blocks cannot overlap chunks; parallelism.tensor_chunks 1 is compiled"
    if parallelism.engine is EngineKind.DEEPSPEED and parallelism.zero_stage == 3:
        return (
            "DeepSpeed gathers and frees weights within a block at zero_stage 3; "
            "zero_stage 2 and engine native are compiled"
        )
    return None


def _worth_on_cpu(spec: RunSpec) -> bool:
    tokens = spec.schedule.steps * spec.tokens_per_step
    flops = tokens * flops_per_token(spec.model, spec.data.tokenizer.size, spec.batch.sequence_tokens)
    return spec.precision.kind is PrecisionKind.BF16 and flops / spec.degrees.ranks >= _WORTH_FLOPS_PER_RANK
