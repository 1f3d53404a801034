"""What a layout requires of the model, the batch and the number formats, and which choices exclude each other.

All sections are checked together when a run is submitted, so that no node starts a run that cannot work. The message about
a dim that is not divisible names the divisor and the nearest value that works. Choices that exclude each other are in one
table, ``REFUSED_COMBINATIONS``, with the reason that users see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from pydantic_core import PydanticCustomError

from trainwright.contracts.attention_parts import ATTENTIONS
from trainwright.contracts.base import field_error
from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.optimizer_spec import UPDATE_RULES, UpdateRule
from trainwright.contracts.parallelism_spec import (
    Degrees,
    EngineKind,
    OffloadKind,
    ParallelismSpec,
    PipelineSchedule,
    StagesKind,
    divisors,
    nearest,
    resolve_degrees,
)
from trainwright.contracts.precision_spec import (
    CompileKind,
    FP8Level,
    PrecisionKind,
    ScalingKind,
)
from trainwright.contracts.refused_combination import RefusedCombination, Sections
from trainwright.contracts.training_spec import RecomputeKind


def check_layout(sections: Sections) -> Degrees:
    """Check that the sections work together, and return the degrees of the run.

    Raises:
        PydanticCustomError: naming the field, its value and what to write instead.
    """
    for rule in REFUSED_COMBINATIONS:
        if rule.broken(sections):
            raise field_error(rule.field, rule.value(sections), rule.reason)
    degrees = resolve_degrees(sections.parallelism, sections.resources.ranks)
    _check_recomputed(sections)
    _check_tensor(sections, degrees.tensor)
    _check_stages(sections.model, sections.parallelism)
    _check_micro_batches(sections, degrees)
    _check_fewer_nodes(sections)
    return degrees


def fits_nodes(sections: Sections, nodes: int) -> bool:
    """Whether the layout also works on ``nodes`` nodes instead of ``resources.nodes``."""
    return _obstacle_on(sections, nodes) is None


def _fp8(level: FP8Level | None = None) -> Callable[[Sections], bool]:
    def chosen(sections: Sections) -> bool:
        fp8 = sections.precision.fp8
        return fp8 is not None and level in (None, fp8.level)

    return chosen


def _deepspeed(sections: Sections) -> bool:
    return sections.parallelism.engine is EngineKind.DEEPSPEED


def _zero_bubble(sections: Sections) -> bool:
    return sections.parallelism.schedule.is_zero_bubble


def _optimizer_in_backward(sections: Sections) -> bool:
    return sections.precision.fp8 is not None and sections.precision.fp8.optimizer_in_backward


_REFUSED_COMBINATIONS = (
    RefusedCombination(
        "engine deepspeed with pipeline > 1",
        "parallelism.engine",
        lambda s: _deepspeed(s) and s.parallelism.pipeline > 1,
        lambda s: s.parallelism.engine.value,
        "supports data parallelism only, but pipeline is above 1: use pipeline 1, or engine native",
    ),
    RefusedCombination(
        "engine deepspeed with tensor > 1",
        "parallelism.engine",
        lambda s: _deepspeed(s) and s.parallelism.tensor > 1,
        lambda s: s.parallelism.engine.value,
        "supports data parallelism only, but tensor is above 1: use tensor 1, or engine native",
    ),
    RefusedCombination(
        "engine deepspeed with precision fp8",
        "parallelism.engine",
        lambda s: _deepspeed(s) and s.precision.kind is PrecisionKind.FP8,
        lambda s: s.parallelism.engine.value,
        "stores gradients and optimizer state in its own formats, not in FP8: use precision bf16, or engine native",
    ),
    RefusedCombination(
        "engine deepspeed at zero_stage 3 with precision.compile on",
        "precision.compile",
        lambda s: _deepspeed(s) and s.parallelism.zero_stage == 3 and s.precision.compile is CompileKind.ON,
        lambda s: s.precision.compile.value,
        "needs weights that stay in place, but DeepSpeed gathers and frees them within a block: use auto or off, or engine native",
    ),
    RefusedCombination(
        "engine deepspeed with shard below the data degree",
        "parallelism.shard",
        lambda s: _deepspeed(s) and s.parallelism.shard is not None,
        lambda s: s.parallelism.shard,
        "cannot be set with engine deepspeed, which shards over all data ranks: leave it empty",
    ),
    RefusedCombination(
        "offload with engine native",
        "parallelism.offload",
        lambda s: s.parallelism.offload is not OffloadKind.NONE and not _deepspeed(s),
        lambda s: s.parallelism.offload.value,
        "needs DeepSpeed: set parallelism.engine to deepspeed, or offload to none",
    ),
    RefusedCombination(
        "offload of parameters below zero_stage 3",
        "parallelism.offload",
        lambda s: s.parallelism.offload is OffloadKind.PARAMETERS and s.parallelism.zero_stage != 3,
        lambda s: s.parallelism.offload.value,
        "needs sharded weights: set zero_stage to 3, or offload to optimizer",
    ),
    RefusedCombination(
        "offload of optimizer states at zero_stage 0",
        "parallelism.offload",
        lambda s: s.parallelism.offload is OffloadKind.OPTIMIZER and s.parallelism.zero_stage == 0,
        lambda s: s.parallelism.offload.value,
        "needs sharded optimizer state: set zero_stage to 1, 2 or 3, or offload to none",
    ),
    RefusedCombination(
        "FP8 O1 or O2 with zero_stage > 0",
        "parallelism.zero_stage",
        lambda s: _fp8()(s) and not _fp8(FP8Level.O3)(s) and s.parallelism.zero_stage > 0,
        lambda s: s.parallelism.zero_stage,
        "shards what O1 and O2 replicate: use level O3, which shards by tensor, or zero_stage 0",
    ),
    RefusedCombination(
        "FP8 O3 with zero_stage",
        "parallelism.zero_stage",
        lambda s: _fp8(FP8Level.O3)(s) and s.parallelism.zero_stage > 0,
        lambda s: s.parallelism.zero_stage,
        "is already part of O3, which shards gradients and optimizer state by tensor: leave it at 0",
    ),
    RefusedCombination(
        "zero_stage 3 with pipeline > 1",
        "parallelism.zero_stage",
        lambda s: s.parallelism.zero_stage == 3 and s.parallelism.pipeline > 1,
        lambda s: s.parallelism.zero_stage,
        "would gather the weights of a stage twice for each micro batch: use zero_stage 2, or pipeline 1",
    ),
    RefusedCombination(
        "zero-bubble schedules with precision.compile on",
        "precision.compile",
        lambda s: _zero_bubble(s) and s.precision.compile is CompileKind.ON,
        lambda s: s.precision.compile.value,
        "has a single backward pass, but zero-bubble schedules split it in two: use auto or off, or schedule 1f1b",
    ),
    RefusedCombination(
        "zero-bubble schedules with recomputation",
        "memory.recompute",
        lambda s: _zero_bubble(s) and s.memory.recompute is not RecomputeKind.NONE,
        lambda s: s.memory.recompute.value,
        "would recompute a block for each half of the backward pass: use none, or schedule 1f1b",
    ),
    RefusedCombination(
        "optimizer in backward with a pipeline",
        "precision.fp8.optimizer_in_backward",
        lambda s: _optimizer_in_backward(s) and s.parallelism.pipeline > 1,
        lambda s: "true",
        "updates weights during the backward pass, while other micro batches in the pipeline still need them: use false",
    ),
    RefusedCombination(
        "FP8 scaling by row or block with tensor > 1",
        "precision.fp8.scaling",
        lambda s: (
            s.precision.fp8 is not None
            and s.precision.fp8.scaling is not ScalingKind.TENSOR
            and s.parallelism.tensor > 1
        ),
        lambda s: s.precision.fp8.scaling.value if s.precision.fp8 else None,
        "does not work with tensor parallelism, whose ranks share one scale per tensor: use tensor, or parallelism.tensor 1",
    ),
    RefusedCombination(
        "tensor_chunks > 1 with precision.compile on",
        "precision.compile",
        lambda s: s.parallelism.tensor_chunks > 1 and s.precision.compile is CompileKind.ON,
        lambda s: s.precision.compile.value,
        "compiles each block into one graph, which cannot overlap chunks: use auto or off, or tensor_chunks 1",
    ),
    RefusedCombination(
        "a tensor group across nodes",
        "parallelism.tensor",
        lambda s: (
            not s.parallelism.tensor_across_nodes and s.resources.slots_per_node % s.parallelism.tensor != 0
        ),
        lambda s: s.parallelism.tensor,
        "does not divide resources.slots_per_node, so a tensor group would span nodes and wait for the network at "
        "each matmul: choose a divisor, or set tensor_across_nodes",
    ),
    RefusedCombination(
        "parallelism.data with resources.min_nodes",
        "parallelism.data",
        lambda s: s.resources.min_nodes is not None and s.parallelism.data is not None,
        lambda s: s.parallelism.data,
        "fixes the number of data ranks, which is lower on fewer nodes: leave it empty, or leave resources.min_nodes empty",
    ),
)


def _of_attentions() -> Iterator[RefusedCombination]:
    """The choices that each variant of attention excludes."""
    for kind, attention in ATTENTIONS.items():
        for rule in attention.excludes:
            choice = f"model.attention {kind} with {rule.choice}"
            yield replace(rule, choice=choice, broken=partial(_broken_by, kind, rule))


def _broken_by(kind: str, rule: RefusedCombination, sections: Sections) -> bool:
    return sections.model.attention == kind and rule.broken(sections)


def of_optimizers(rules: Mapping[str, UpdateRule]) -> Iterator[RefusedCombination]:
    """What each optimizer does not support."""
    for kind, rule in rules.items():
        if rule.fp8_states is None:
            yield RefusedCombination(
                f"optimizer.kind {kind} with precision fp8",
                "optimizer.kind",
                partial(_optimizer_and, _fp8(), kind),
                lambda s: s.optimizer.kind,
                "has no form whose states take 8 and 16 bits: use precision bf16, or another optimizer",
            )
        if not rule.on_deepspeed:
            yield RefusedCombination(
                f"optimizer.kind {kind} with engine deepspeed",
                "optimizer.kind",
                partial(_optimizer_and, _deepspeed, kind),
                lambda s: s.optimizer.kind,
                "has no form that DeepSpeed can shard: use engine native, or another optimizer",
            )


def _optimizer_and(other: Callable[[Sections], bool], kind: str, sections: Sections) -> bool:
    return sections.optimizer.kind == kind and other(sections)


REFUSED_COMBINATIONS = (*_REFUSED_COMBINATIONS, *_of_attentions(), *of_optimizers(UPDATE_RULES))
"""Choices that exclude each other. The first one that is violated is reported."""


def _check_recomputed(sections: Sections) -> None:
    layers = sections.model.layers
    for first, last in sections.memory.recomputed or ():
        if last >= layers:
            rule = f"goes beyond the last layer, {layers - 1}: use {min(first, layers - 1)}-{layers - 1}"
            raise field_error("memory.recompute_layers", f"{first}-{last}", rule)


def _check_tensor(sections: Sections, tensor: int) -> None:
    """Check that all ranks of a tensor group get equally many heads, features and positions."""
    model, batch = sections.model, sections.batch
    sizes = {
        "model.heads": model.heads,
        "model.kv_heads": model.key_value_heads,
        "model.feed_forward": model.feed_forward_width,
        "batch.sequence_tokens": batch.sequence_tokens,
    }
    for field, size in sizes.items():
        if size % tensor:
            fitting = [
                item for item in range(1, tensor + 1) if all(value % item == 0 for value in sizes.values())
            ]
            rule = (
                f"does not divide {field} {size}: the nearest that does is {nearest(fitting, tensor)}, "
                f"or make {field} {-(-size // tensor) * tensor}"
            )
            raise field_error("parallelism.tensor", tensor, rule)
    positions, chunks = batch.sequence_tokens // tensor, sections.parallelism.tensor_chunks
    if positions % chunks:
        rule = (
            f"does not divide batch.sequence_tokens {batch.sequence_tokens} ÷ tensor {tensor} = {positions}: "
            f"the nearest that does is {nearest(divisors(positions), chunks)}"
        )
        raise field_error("parallelism.tensor_chunks", chunks, rule)


def _check_stages(model: ModelSpec, spec: ParallelismSpec) -> None:
    if isinstance(spec.stages, tuple) and sum(spec.stages) != model.layers:
        shown = ",".join(map(str, spec.stages))
        rule = f"adds up to {sum(spec.stages)}, but model.layers is {model.layers}: make them equal"
        raise field_error("parallelism.stages", shown, rule)
    if spec.stage_count > model.layers:
        per_rank = f" × stages_per_rank {spec.local_stages}" if spec.local_stages > 1 else ""
        rule = (
            f"{per_rank} = {spec.stage_count} stages, but there are only {model.layers} layers: "
            f"use pipeline {model.layers // spec.local_stages} at most".lstrip()
        )
        raise field_error("parallelism.pipeline", spec.pipeline, rule)


def _check_micro_batches(sections: Sections, degrees: Degrees) -> None:
    """Check that the global batch divides evenly, into as many micro batches as the schedule needs."""
    batch, spec = sections.batch, sections.parallelism
    whole = batch.micro_sequences * degrees.data
    if batch.global_sequences % whole:
        near = max(1, round(batch.global_sequences / whole)) * whole
        rule = (
            f"must be a multiple of batch.micro_sequences × data degree = {batch.micro_sequences} × {degrees.data} "
            f"= {whole}: the nearest is {near}"
        )
        raise field_error("batch.global_sequences", batch.global_sequences, rule)
    rounds = batch.global_sequences // whole
    if spec.pipeline > 1 and rounds < spec.pipeline:
        rule = (
            f"gives each data rank {rounds} micro batches, fewer than the pipeline's {spec.pipeline} ranks: "
            f"use at least {whole * spec.pipeline}, or smaller batch.micro_sequences"
        )
        raise field_error("batch.global_sequences", batch.global_sequences, rule)
    interleaved = (PipelineSchedule.INTERLEAVED, PipelineSchedule.INTERLEAVED_ZERO_BUBBLE)
    if spec.schedule in interleaved and rounds % (rounds // spec.pipeline):
        near = max(1, round(rounds / spec.pipeline)) * spec.pipeline
        rule = (
            f"gives each data rank {rounds} micro batches, which schedule {spec.schedule} cannot divide into rounds of "
            f"{spec.pipeline} or slightly more: the nearest is {near * whole}"
        )
        raise field_error("batch.global_sequences", batch.global_sequences, rule)


def _check_fewer_nodes(sections: Sections) -> None:
    """Check that the run can go on with its least number of nodes. Numbers between may not fit; they are not used."""
    least, nodes = sections.resources.min_nodes, sections.resources.nodes
    if least is None or (obstacle := _obstacle_on(sections, least)) is None:
        return
    fitting = [number for number in range(1, nodes + 1) if fits_nodes(sections, number)]
    rule = f"does not work: with that many nodes, {obstacle}. The nearest number of nodes that works is {nearest(fitting, least)}"
    raise field_error("resources.min_nodes", least, rule)


def _obstacle_on(sections: Sections, nodes: int) -> str | None:
    """Why the layout does not work on ``nodes`` nodes; None if it does."""
    resources = sections.resources.model_copy(update={"nodes": nodes, "min_nodes": None})
    try:
        check_layout(replace(sections, resources=resources))
    except PydanticCustomError as error:
        context = error.context or {}
        return f"{context['field']} {context['value']} {context['rule']}"
    return None


def even_stages(layers: int, stages: int) -> tuple[int, ...]:
    """Distribute ``layers`` over ``stages`` as evenly as possible. The last stages, which also have the loss, get fewer."""
    base, more = divmod(layers, stages)
    return (base + 1,) * more + (base,) * (stages - more)


def configured_stages(model: ModelSpec, spec: ParallelismSpec) -> tuple[int, ...] | None:
    """Layers of each stage; None if they are to be determined by measurement."""
    if isinstance(spec.stages, tuple):
        return spec.stages
    return None if spec.stages is StagesKind.AUTO else even_stages(model.layers, spec.stage_count)
