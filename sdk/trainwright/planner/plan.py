"""The plan of a run's layout, before it is submitted: what is on each rank, its memory, and the pipeline's timeline.

It is shown in the form's diagrams and the command line, and used by ``stages: auto``. Times are counted in FLOPs, so they are
relative and not in seconds: one stage's forward pass compared with another's, and the bubble compared with the work.
Communication takes no time, and attention counts as in ``flops``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from trainwright.contracts.api.plans import PlannedAction, PlannedMemory, PlannedRank, PlannedStage, RunPlan
from trainwright.contracts.block_parts import mixing_flops
from trainwright.contracts.export_architecture import loaded_by
from trainwright.contracts.layout_rules import configured_stages
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.training_spec import RecomputeKind
from trainwright.planner.compilation import compiles
from trainwright.planner.memory import (
    RankMemory,
    StageLayers,
    WeightSize,
    block_mode,
    block_weight_sizes,
    end_weights,
    linear_elements,
    loss_bytes,
    pipeline_of,
    rank_memory,
    stage_bytes,
    stages_of,
    static_memory,
    transfer_bytes,
)
from trainwright.planner.pipeline_simulation import (
    InFlight,
    Pipeline,
    StageSeconds,
    in_flight,
    simulate,
    torch_action_orders,
)
from trainwright.planner.stage_partition import RankCapacity, StageCost, partition_stages
from trainwright.planner.weight_groups import learning_rates, what_decays
from trainwright.sizes import format_distinct

_MAX_ACTIONS = 4_000
"""Most actions in a timeline. A diagram with more would be unreadable."""


@dataclass(frozen=True)
class Slot:
    """A slot that a rank may get: the smallest, or the largest that a node could make of its memory."""

    node: str
    bytes: int


@dataclass(frozen=True)
class Host:
    """The largest node that a run may get."""

    node: str
    bytes: int
    """Host memory, without that of GPUs."""


def plan(
    spec: RunSpec,
    cuda: bool = False,
    capacities: Sequence[RankCapacity] | None = None,
    slot: Slot | None = None,
    largest: Slot | None = None,
    host: Host | None = None,
) -> RunPlan:
    """Plan the layout of ``spec``.

    Args:
        cuda: whether the run will be on GPUs, where blocks are compiled.
        capacities: of the pipeline ranks, for ``stages: auto``; default: equal ones.
        slot: the smallest, to compare the memory with, if given.
        largest: no rank can need more than this, if given.
        host: to compare the host memory of GPU ranks with, if given. That of CPU ranks is part of their slots.

    Raises:
        DoesNotFitError: no partition into stages fits into the memory of the ranks.
    """
    compiled = compiles(spec, cuda)
    given = configured_stages(spec.model, spec.parallelism)
    layers = given or auto_stages(spec, capacities, compiled)
    degrees = spec.degrees
    pipeline = pipeline_of(spec)
    places = [degrees.coordinates(rank) for rank in range(degrees.ranks)]
    shown, bubble = _timeline(spec, layers)
    memory = [rank_memory(spec, layers, rank, compiled) for rank in range(degrees.pipeline)]
    host_bytes = _host_bytes(spec, memory)
    too_large = _impossible(memory, largest, cuda) if largest else None
    return RunPlan(
        pipeline=degrees.pipeline,
        data=degrees.data,
        shard=degrees.shard,
        tensor=degrees.tensor,
        stages_per_rank=pipeline.stages_per_rank,
        micro_batches=spec.accumulation_steps,
        schedule=spec.parallelism.schedule,
        ranks=[
            PlannedRank(
                rank=rank,
                pipeline=place.pipeline,
                data=place.replica * degrees.shard + place.shard,
                tensor=place.tensor,
            )
            for rank, place in enumerate(places)
        ],
        stages=[
            PlannedStage(
                stage=item.number,
                rank=pipeline.rank_of(item.number),
                first_layer=item.layers.start,
                layers=len(item.layers),
                embedding=item.first,
                loss=item.last,
            )
            for item in stages_of(layers)
        ],
        stages_are_measured=given is None,
        memory=[_planned_memory(rank, one) for rank, one in enumerate(memory)],
        slot_bytes=slot.bytes if slot else None,
        slot_node=slot.node if slot else None,
        largest_bytes=largest.bytes if largest else None,
        slot_device=("cuda" if cuda else "cpu") if slot else None,
        host_bytes=host_bytes,
        host_node_bytes=host.bytes if host else None,
        host_node=host.node if host else None,
        warnings=[
            *(_too_large(memory, slot, cuda) if slot and too_large is None else []),
            *(_too_large_for_host(host_bytes, host) if host and cuda else []),
        ],
        too_large=too_large,
        export_loaded_by=loaded_by(spec.model),
        what_decays=what_decays(spec),
        learning_rates=learning_rates(spec),
        timeline=shown,
        bubble_fraction=bubble,
    )


class MemoryNeeds(NamedTuple):
    rank_bytes: int
    """What the rank that needs most takes of its slot, as in the plan."""

    host_bytes: int
    """Host memory of all ranks of a node, beside that of their slots."""


def memory_needs(spec: RunSpec, cuda: bool) -> MemoryNeeds:
    """The memory that a node must have for ``spec``."""
    compiled = compiles(spec, cuda)
    layers = configured_stages(spec.model, spec.parallelism) or auto_stages(spec, compiled=compiled)
    memory = [rank_memory(spec, layers, rank, compiled) for rank in range(spec.parallelism.pipeline)]
    return MemoryNeeds(max(_needs(memory, cuda)), _host_bytes(spec, memory))


def _host_bytes(spec: RunSpec, memory: Sequence[RankMemory]) -> int:
    return spec.resources.slots_per_node * max(rank.host for rank in memory)


def auto_stages(
    spec: RunSpec, capacities: Sequence[RankCapacity] | None = None, compiled: bool = False
) -> tuple[int, ...]:
    """Layers of each stage such that the slowest pipeline rank is as fast as possible.

    Args:
        capacities: speed and memory of each pipeline rank; default: equal speeds and unlimited memory.

    Raises:
        DoesNotFitError: naming the stage and how many bytes are missing.
    """
    ranks = capacities or [RankCapacity()] * spec.parallelism.pipeline
    flops = [_layer_flops(spec, layer).total for layer in range(spec.model.layers)]
    return partition_stages(flops, _costs(spec, compiled), ranks)


def stage_times(spec: RunSpec, layers: Sequence[int]) -> list[StageSeconds]:
    """Time of each stage for a micro batch, in units of a plain layer's forward pass."""
    unit = _plain_layer(spec)
    found = []
    for stage in stages_of(layers):
        parts = [_layer_flops(spec, layer) for layer in stage.layers]
        parts += [_loss_flops(spec)] if stage.last else []
        found.append(
            StageSeconds(
                sum(part.forward for part in parts) / unit,
                sum(part.input for part in parts) / unit,
                sum(part.weight for part in parts) / unit,
            )
        )
    return found


class _Flops(StageSeconds):
    """FLOPs of a token: forward, for the input's gradient, for the weights' gradients."""

    @property
    def total(self) -> float:
        return self.forward + self.input + self.weight


def _layer_flops(spec: RunSpec, layer: int) -> _Flops:
    matmuls = 2.0 * linear_elements(spec)
    mixing = mixing_flops(spec.model, layer, spec.batch.sequence_tokens) / spec.parallelism.tensor
    again = matmuls + mixing if block_mode(spec, layer).recompute is RecomputeKind.FULL else 0.0
    return _Flops(matmuls + mixing, matmuls + 2 * mixing + again, matmuls)


def _loss_flops(spec: RunSpec) -> _Flops:
    """The matmul with the head. A chunked loss computes its gradients in the forward pass already."""
    matmul = 2.0 * spec.data.tokenizer.size * spec.model.width / spec.parallelism.tensor
    tokens = spec.batch.micro_sequences * spec.batch.sequence_tokens
    if tokens > spec.memory.loss_chunk_tokens or spec.parallelism.tensor > 1:
        return _Flops(3 * matmul, 0.0, 0.0)
    return _Flops(matmul, matmul, matmul)


def _plain_layer(spec: RunSpec) -> float:
    return _layer_flops(spec, 0).forward


def _costs(spec: RunSpec, compiled: bool) -> list[StageCost]:
    """The cost of each stage, for each possible number of layers."""
    pipeline = pipeline_of(spec)
    most = [_most_kept(pipeline, rank) for rank in range(pipeline.ranks)]
    block = _even_bytes(spec, block_weight_sizes(spec))
    modes = [block_mode(spec, layer, compiled) for layer in range(spec.model.layers)]
    example = {mode: layer for layer, mode in enumerate(modes)}
    found = []
    for number in range(pipeline.stages):
        rank = pipeline.rank_of(number)
        whole, deferred = most[rank].get(number, InFlight(0, 0))
        first, last = number == 0, number == pipeline.stages - 1
        mode_bytes = {
            mode: block + sum(stage_bytes(spec, _alone(layer, first, last), whole, deferred, compiled))
            for mode, layer in example.items()
        }
        between = sum(stage_bytes(spec, StageLayers(number, range(0), first, last), whole, 0, compiled))
        beside = _even_bytes(spec, _ends_beside(spec, pipeline, number)) + between + transfer_bytes(spec)
        beside += loss_bytes(spec, compiled) if last else 0
        flops = _loss_flops(spec).total if last else 0.0
        found.append(StageCost(rank, flops, beside, tuple(mode_bytes[mode] - between for mode in modes)))
    return found


def _ends_beside(spec: RunSpec, pipeline: Pipeline, number: int) -> list[WeightSize]:
    """Weights of embedding and head that a stage adds to its rank. A tied embedding counts once, not twice."""
    rank, last = pipeline.rank_of(number), pipeline.stages - 1
    ends = end_weights(spec, number == 0, number == last)
    if number == 0 or number != last or pipeline.rank_of(0) != rank:
        return ends
    return ends[1:] if spec.model.tied_embeddings else ends


def _alone(layer: int, first: bool, last: bool) -> StageLayers:
    return StageLayers(0, range(layer, layer + 1), first, last)


def _even_bytes(spec: RunSpec, tensors: list[WeightSize]) -> int:
    """Weights, gradients and states of ``tensors``, if there are enough of them to shard evenly."""
    ranks = spec.degrees.data
    return static_memory(spec, tensors * ranks).total // ranks if tensors else 0


def _most_kept(pipeline: Pipeline, rank: int) -> dict[int, InFlight]:
    """The peak of what a rank stores for its stages."""
    return max(
        in_flight(torch_action_orders(pipeline)[rank]),
        key=lambda moment: sum(sum(item) for item in moment.values()),
    )


def _timeline(spec: RunSpec, layers: Sequence[int]) -> tuple[list[list[PlannedAction]], float]:
    """The start of a step, as far as it can be shown, and the bubble of the entire step."""
    chosen, rounds = spec.parallelism, spec.accumulation_steps
    kinds = 3 if chosen.schedule.is_zero_bubble else 2
    fitting = _MAX_ACTIONS // (chosen.stage_count * kinds) // chosen.pipeline * chosen.pipeline
    shown = min(rounds, max(2 * chosen.pipeline, fitting))
    pipeline = Pipeline(chosen.schedule, chosen.pipeline, chosen.local_stages, shown)
    times = stage_times(spec, layers)
    timeline = simulate(pipeline, times)
    # Once the pipeline is full, each further micro batch takes as long as the slowest rank needs for it.
    work = [sum(sum(times[stage]) for stage in pipeline.stages_of(rank)) for rank in range(pipeline.ranks)]
    end = timeline.end + (rounds - shown) * max(work)
    cells = [
        [
            PlannedAction(
                kind=cell.action.kind.value,
                stage=cell.action.stage,
                micro_batch=cell.action.micro_batch,
                start=round(cell.start, 4),
                end=round(cell.end, 4),
            )
            for cell in own
        ]
        for own in timeline.ranks
    ]
    return cells, max(0.0, 1 - rounds * sum(work) / (pipeline.ranks * end))


def _planned_memory(rank: int, memory: RankMemory) -> PlannedMemory:
    return PlannedMemory(rank=rank, total=memory.total, **vars(memory))


def _impossible(memory: Sequence[RankMemory], largest: Slot, cuda: bool) -> str | None:
    """Why no node can run this; None if one can."""
    most = max(_needs(memory, cuda))
    if most <= largest.bytes:
        return None
    who = "A rank needs" if len(memory) > 1 else "Each rank needs"
    needs, has = format_distinct(most, largest.bytes)
    return (
        f"{who} {needs}, and the largest node, {largest.node}, has {has} for it"
        f"{'' if cuda else ' when no other run is on it'}. Choose a smaller "
        "model or batch.micro_sequences, or use more ranks with parallelism.pipeline, tensor or zero_stage."
    )


def _needs(memory: Sequence[RankMemory], cuda: bool) -> list[int]:
    """Bytes that each pipeline rank needs of its slot, which for a CPU rank includes its host memory."""
    return [item.total if cuda else item.total + item.host for item in memory]


def _too_large(memory: Sequence[RankMemory], slot: Slot, cuda: bool) -> list[str]:
    """A warning if ranks need more than ``slot`` has."""
    needs = _needs(memory, cuda)
    over = [rank for rank, need in enumerate(needs) if need > slot.bytes]
    if not over:
        return []
    who = f"Pipeline rank {over[0]}" if len(over) < len(memory) else "Each rank"
    if 1 < len(over) < len(memory):
        who = f"Each of pipeline ranks {', '.join(map(str, over))}"
    has = "a GPU has" if cuda else "a slot's share of the memory is"
    most, share = format_distinct(max(needs), slot.bytes)
    return [
        f"{who} needs up to {most}, and on {slot.node} {has} {share}: the run may run out of memory. "
        "Use more ranks with parallelism.pipeline, tensor or zero_stage, memory.recompute, or a smaller batch.micro_sequences."
    ]


def _too_large_for_host(bytes_needed: int, host: Host) -> list[str]:
    """A warning if the GPU ranks of a node need more host memory than any node that could run them has."""
    if bytes_needed <= host.bytes:
        return []
    takes, has = format_distinct(bytes_needed, host.bytes)
    return [
        f"Checkpoints and offload take {takes} of the node's own memory, and the largest node for this run, {host.node}, has "
        f"{has}: the run may run out of it. Use fewer GPUs on more nodes, less parallelism.offload, or a node with more "
        "memory."
    ]
