"""What a layout asks of the model, the batch and the number formats, and which choices exclude each other.

Sections are checked together when a run is submitted, so that no node starts what cannot work. Dims that must divide name
the divisor that fails and the nearest choice that does not; choices that exclude each other stand in one table,
``COMBINATIONS``, with the reason that people are given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trainwright.contracts.base import refused
from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.parallelism_spec import (
    Degrees,
    EngineKind,
    OffloadKind,
    ParallelismSpec,
    PipelineSchedule,
    ResourcesSpec,
    StagesKind,
    degrees_of,
    divisors,
    nearest,
)
from trainwright.contracts.precision_spec import (
    CompileKind,
    FP8Level,
    PrecisionKind,
    PrecisionSpec,
    ScalingKind,
)
from trainwright.contracts.training_spec import BatchSpec, MemorySpec, RecomputeKind


@dataclass(frozen=True)
class Sections:
    """What a layout is checked against."""

    model: ModelSpec
    batch: BatchSpec
    precision: PrecisionSpec
    memory: MemorySpec
    parallelism: ParallelismSpec
    resources: ResourcesSpec


@dataclass(frozen=True)
class Combination:
    """Two choices that exclude each other."""

    choice: str
    """As people write it, such as `parallelism.schedule zbv`."""

    field: str
    """Dotted path of the field that is blamed."""

    broken: Callable[[Sections], bool]
    value: Callable[[Sections], object]
    reason: str
    """Why, and what to do instead."""


def check_layout(sections: Sections) -> Degrees:
    """The degrees of a run whose sections fit together.

    Raises:
        PydanticCustomError: naming the field, its value and what to write instead.
    """
    for rule in COMBINATIONS:
        if rule.broken(sections):
            raise refused(rule.field, rule.value(sections), rule.reason)
    degrees = degrees_of(sections.parallelism, sections.resources.ranks)
    _check_recomputed(sections)
    _check_tensor(sections, degrees.tensor)
    _check_stages(sections.model, sections.parallelism)
    _check_rounds(sections, degrees)
    return degrees


def _fp8(level: FP8Level | None = None) -> Callable[[Sections], bool]:
    def chosen(sections: Sections) -> bool:
        fp8 = sections.precision.fp8
        return fp8 is not None and level in (None, fp8.level)

    return chosen


def _deepspeed(sections: Sections) -> bool:
    return sections.parallelism.engine is EngineKind.DEEPSPEED


def _zero_bubble(sections: Sections) -> bool:
    return sections.parallelism.schedule.is_zero_bubble


def _releases(sections: Sections) -> bool:
    return sections.precision.fp8 is not None and sections.precision.fp8.release_gradients


COMBINATIONS = (
    Combination(
        "engine deepspeed with pipeline > 1",
        "parallelism.engine",
        lambda s: _deepspeed(s) and s.parallelism.pipeline > 1,
        lambda s: s.parallelism.engine.value,
        "has data parallelism only here, and pipeline is above 1: use pipeline 1, or engine native",
    ),
    Combination(
        "engine deepspeed with tensor > 1",
        "parallelism.engine",
        lambda s: _deepspeed(s) and s.parallelism.tensor > 1,
        lambda s: s.parallelism.engine.value,
        "has data parallelism only here, and tensor is above 1: use tensor 1, or engine native",
    ),
    Combination(
        "engine deepspeed with precision fp8",
        "parallelism.engine",
        lambda s: _deepspeed(s) and s.precision.kind is PrecisionKind.FP8,
        lambda s: s.parallelism.engine.value,
        "keeps gradients and states in its own formats, not in FP8: use precision bf16, or engine native",
    ),
    Combination(
        "engine deepspeed at zero_stage 3 with precision.compile on",
        "precision.compile",
        lambda s: _deepspeed(s) and s.parallelism.zero_stage == 3 and s.precision.compile is CompileKind.ON,
        lambda s: s.precision.compile.value,
        "needs weights that stay, and DeepSpeed lets them come and go within a block: use auto or off, or engine native",
    ),
    Combination(
        "engine deepspeed with shard below the data degree",
        "parallelism.shard",
        lambda s: _deepspeed(s) and s.parallelism.shard is not None,
        lambda s: s.parallelism.shard,
        "cannot be chosen with engine deepspeed, which cuts over all data ranks: leave it empty",
    ),
    Combination(
        "offload with engine native",
        "parallelism.offload",
        lambda s: s.parallelism.offload is not OffloadKind.NONE and not _deepspeed(s),
        lambda s: s.parallelism.offload.value,
        "is done by DeepSpeed: set parallelism.engine to deepspeed, or offload to none",
    ),
    Combination(
        "offload of parameters below zero_stage 3",
        "parallelism.offload",
        lambda s: s.parallelism.offload is OffloadKind.PARAMETERS and s.parallelism.zero_stage != 3,
        lambda s: s.parallelism.offload.value,
        "needs weights that are cut: set zero_stage to 3, or offload to optimizer",
    ),
    Combination(
        "offload of optimizer states at zero_stage 0",
        "parallelism.offload",
        lambda s: s.parallelism.offload is OffloadKind.OPTIMIZER and s.parallelism.zero_stage == 0,
        lambda s: s.parallelism.offload.value,
        "needs states that are cut: set zero_stage to 1, 2 or 3, or offload to none",
    ),
    Combination(
        "FP8 O1 or O2 with zero_stage > 0",
        "parallelism.zero_stage",
        lambda s: _fp8()(s) and not _fp8(FP8Level.O3)(s) and s.parallelism.zero_stage > 0,
        lambda s: s.parallelism.zero_stage,
        "cuts over the data ranks what O1 and O2 hold whole: use level O3, which cuts it by tensors, or zero_stage 0",
    ),
    Combination(
        "FP8 O3 with zero_stage",
        "parallelism.zero_stage",
        lambda s: _fp8(FP8Level.O3)(s) and s.parallelism.zero_stage > 0,
        lambda s: s.parallelism.zero_stage,
        "is part of O3 already, which cuts gradients and states by whole tensors: leave it 0",
    ),
    Combination(
        "zero_stage 3 with pipeline > 1",
        "parallelism.zero_stage",
        lambda s: s.parallelism.zero_stage == 3 and s.parallelism.pipeline > 1,
        lambda s: s.parallelism.zero_stage,
        "would gather a stage's weights twice for each of its micro batches: use zero_stage 2, or pipeline 1",
    ),
    Combination(
        "zero-bubble schedules with precision.compile on",
        "precision.compile",
        lambda s: _zero_bubble(s) and s.precision.compile is CompileKind.ON,
        lambda s: s.precision.compile.value,
        "makes one backward pass, which zero-bubble schedules do in two halves: use auto or off, or schedule 1f1b",
    ),
    Combination(
        "zero-bubble schedules with recomputation",
        "memory.recompute",
        lambda s: _zero_bubble(s) and s.memory.recompute is not RecomputeKind.NONE,
        lambda s: s.memory.recompute.value,
        "would compute a block anew for each half of the backward pass: use none, or schedule 1f1b",
    ),
    Combination(
        "gradient release with a pipeline",
        "precision.fp8.release_gradients",
        lambda s: _releases(s) and s.parallelism.pipeline > 1,
        lambda s: "true",
        "moves weights in the backward pass, while the pipeline's other micro batches still need them: use false",
    ),
    Combination(
        "FP8 scaling by row or block with tensor > 1",
        "precision.fp8.scaling",
        lambda s: (
            s.precision.fp8 is not None
            and s.precision.fp8.scaling is not ScalingKind.TENSOR
            and s.parallelism.tensor > 1
        ),
        lambda s: s.precision.fp8.scaling.value if s.precision.fp8 else None,
        "is not shared by the ranks of a tensor group: use tensor, or parallelism.tensor 1",
    ),
    Combination(
        "tensor_chunks > 1 with precision.compile on",
        "precision.compile",
        lambda s: s.parallelism.tensor_chunks > 1 and s.precision.compile is CompileKind.ON,
        lambda s: s.precision.compile.value,
        "makes a graph of each block, which cannot hold a chunk that is under way: use auto or off, or tensor_chunks 1",
    ),
    Combination(
        "a tensor group across nodes",
        "parallelism.tensor",
        lambda s: (
            not s.parallelism.tensor_across_nodes and s.resources.slots_per_node % s.parallelism.tensor != 0
        ),
        lambda s: s.parallelism.tensor,
        "does not divide resources.slots_per_node, so that a tensor group would span nodes and wait for the network at "
        "each product: choose a divisor, or set tensor_across_nodes",
    ),
)
"""Choices that exclude each other; the first that is broken is told."""


def _check_recomputed(sections: Sections) -> None:
    layers = sections.model.layers
    for first, last in sections.memory.recomputed or ():
        if last >= layers:
            rule = f"goes beyond the last layer, which is number {layers - 1}: use {min(first, layers - 1)}-{layers - 1}"
            raise refused("memory.recompute_layers", f"{first}-{last}", rule)


def _check_tensor(sections: Sections, tensor: int) -> None:
    """Each rank of a tensor group gets as many heads, features and positions as the others."""
    model, batch = sections.model, sections.batch
    sizes = {
        "model.heads": model.heads,
        "model.kv_heads": model.key_value_heads,
        "model.feed_forward": model.hidden,
        "batch.sequence_tokens": batch.sequence_tokens,
    }
    for field, size in sizes.items():
        if size % tensor:
            fitting = [
                one for one in range(1, tensor + 1) if all(value % one == 0 for value in sizes.values())
            ]
            rule = (
                f"does not divide {field} {size}: the nearest that does is {nearest(fitting, tensor)}, "
                f"or make {field} {-(-size // tensor) * tensor}"
            )
            raise refused("parallelism.tensor", tensor, rule)
    positions, chunks = batch.sequence_tokens // tensor, sections.parallelism.tensor_chunks
    if positions % chunks:
        rule = (
            f"does not divide batch.sequence_tokens {batch.sequence_tokens} ÷ tensor {tensor} = {positions}: "
            f"the nearest that does is {nearest(divisors(positions), chunks)}"
        )
        raise refused("parallelism.tensor_chunks", chunks, rule)


def _check_stages(model: ModelSpec, spec: ParallelismSpec) -> None:
    if isinstance(spec.stages, tuple) and sum(spec.stages) != model.layers:
        shown = ",".join(map(str, spec.stages))
        rule = f"adds up to {sum(spec.stages)}, but model.layers is {model.layers}: make them equal"
        raise refused("parallelism.stages", shown, rule)
    if spec.stage_count > model.layers:
        per_rank = f" × stages_per_rank {spec.chunks}" if spec.chunks > 1 else ""
        rule = (
            f"{per_rank} = {spec.stage_count} stages, but there are only {model.layers} layers: "
            f"use pipeline {model.layers // spec.chunks} at most".lstrip()
        )
        raise refused("parallelism.pipeline", spec.pipeline, rule)


def _check_rounds(sections: Sections, degrees: Degrees) -> None:
    """The global batch is cut evenly, and into as many micro batches as the schedule needs."""
    batch, spec = sections.batch, sections.parallelism
    whole = batch.micro_sequences * degrees.data
    if batch.global_sequences % whole:
        near = max(1, round(batch.global_sequences / whole)) * whole
        rule = (
            f"must be a multiple of batch.micro_sequences × data degree = {batch.micro_sequences} × {degrees.data} "
            f"= {whole}: the nearest is {near}"
        )
        raise refused("batch.global_sequences", batch.global_sequences, rule)
    rounds = batch.global_sequences // whole
    if spec.pipeline > 1 and rounds < spec.pipeline:
        rule = (
            f"gives each data rank {rounds} micro batches, fewer than the pipeline's {spec.pipeline} ranks: "
            f"use at least {whole * spec.pipeline}, or smaller batch.micro_sequences"
        )
        raise refused("batch.global_sequences", batch.global_sequences, rule)
    interleaved = (PipelineSchedule.INTERLEAVED, PipelineSchedule.INTERLEAVED_ZERO_BUBBLE)
    if spec.schedule in interleaved and rounds % (rounds // spec.pipeline):
        near = max(1, round(rounds / spec.pipeline)) * spec.pipeline
        rule = (
            f"gives each data rank {rounds} micro batches, which schedule {spec.schedule} cannot cut into rounds of "
            f"{spec.pipeline} or a little more: the nearest is {near * whole}"
        )
        raise refused("batch.global_sequences", batch.global_sequences, rule)


def stages_even(layers: int, stages: int) -> tuple[int, ...]:
    """``layers`` over ``stages``, as equal as can be; the last ones, which hold the loss too, get the fewer."""
    base, more = divmod(layers, stages)
    return (base + 1,) * more + (base,) * (stages - more)


def given_stages(model: ModelSpec, spec: ParallelismSpec) -> tuple[int, ...] | None:
    """Layers of each stage; None where they are to be found by measuring."""
    if isinstance(spec.stages, tuple):
        return spec.stages
    return None if spec.stages is StagesKind.AUTO else stages_even(model.layers, spec.stage_count)
