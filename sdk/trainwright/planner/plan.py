"""What a run's layout comes to, before it is submitted: who holds what, how much memory, who works when.

The same answer serves the form's pictures, the command line and ``stages: auto``. Times are counted in FLOPs, so they show
proportions and no seconds: a stage's forward pass against another's, and the bubble against the work. Links between ranks
take none of it, and attention counts as in ``flops``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainwright.contracts.api.plans import PlannedAction, PlannedMemory, PlannedRank, PlannedStage, RunPlan
from trainwright.contracts.layout_rules import given_stages
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.training_spec import RecomputeKind
from trainwright.planner.compiling import compiles
from trainwright.planner.memory import (
    RankMemory,
    StageLayers,
    block_weights,
    end_weights,
    form_of,
    host_bytes_per_node,
    loss_bytes,
    pipeline_of,
    rank_memory,
    stage_bytes,
    stages_of,
    static_memory,
    transfer_bytes,
)
from trainwright.planner.schedule import Kept, Pipeline, StageSeconds, kept, orders, simulate
from trainwright.planner.split import Holder, StageCost, split

_MOST_ACTIONS = 4_000
"""Of a timeline that is shown. A picture of more could not be looked at."""


@dataclass(frozen=True)
class Slot:
    """The smallest place that a rank may get."""

    node: str
    bytes: int


@dataclass(frozen=True)
class Host:
    """The largest node that a run may get."""

    node: str
    bytes: int
    """Of its own memory, beside that of its GPUs."""


def plan(
    spec: RunSpec,
    cuda: bool = False,
    holders: Sequence[Holder] | None = None,
    slot: Slot | None = None,
    host: Host | None = None,
) -> RunPlan:
    """The layout of ``spec``.

    Args:
        cuda: whether it will run on GPUs, where blocks are compiled.
        holders: the pipeline's ranks, for ``stages: auto``; equal ones where left out.
        slot: what memory is compared with; with nothing where left out.
        host: what is compared with the memory that GPU ranks take of their node; CPU ranks' is in their slots' share.

    Raises:
        DoesNotFitError: stages are to be found, and none fit into the holders' memory.
    """
    compiled = compiles(spec, cuda)
    given = given_stages(spec.model, spec.parallelism)
    layers = given or auto_stages(spec, holders, compiled)
    degrees = spec.degrees
    pipeline = pipeline_of(spec)
    places = [degrees.place(rank) for rank in range(degrees.ranks)]
    shown, bubble = _timeline(spec, layers)
    memory = [rank_memory(spec, layers, rank, compiled) for rank in range(degrees.pipeline)]
    return RunPlan(
        pipeline=degrees.pipeline,
        data=degrees.data,
        shard=degrees.shard,
        tensor=degrees.tensor,
        stages_per_rank=pipeline.chunks,
        micro_batches=spec.accumulation_rounds,
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
                stage=one.number,
                rank=pipeline.rank_of(one.number),
                first_layer=one.layers.start,
                layers=len(one.layers),
                embedding=one.first,
                loss=one.last,
            )
            for one in stages_of(layers)
        ],
        stages_are_measured=given is None,
        memory=[_told(rank, one) for rank, one in enumerate(memory)],
        slot_bytes=slot.bytes if slot else None,
        slot_node=slot.node if slot else None,
        host_bytes=host_bytes_per_node(spec),
        host_node_bytes=host.bytes if host else None,
        host_node=host.node if host else None,
        warnings=[
            *(_too_large(memory, slot, cuda) if slot else []),
            *(_too_large_for_host(spec, host) if host and cuda else []),
        ],
        timeline=shown,
        bubble_fraction=bubble,
    )


def auto_stages(
    spec: RunSpec, holders: Sequence[Holder] | None = None, compiled: bool = False
) -> tuple[int, ...]:
    """Layers of each stage that make the slowest of the pipeline's ranks as fast as can be.

    Args:
        holders: of each pipeline rank speed and memory; equal speeds and memory without end where left out.

    Raises:
        DoesNotFitError: naming the stage and the bytes that it lacks.
    """
    ranks = holders or [Holder()] * spec.parallelism.pipeline
    flops = [_layer_flops(spec, layer).total for layer in range(spec.model.layers)]
    return split(flops, _costs(spec, compiled), ranks)


def stage_times(spec: RunSpec, layers: Sequence[int]) -> list[StageSeconds]:
    """Work of each stage on a micro batch, in units of one plain layer's forward pass."""
    unit = _plain_layer(spec)
    found = []
    for stage in stages_of(layers):
        parts = [_layer_flops(spec, layer) for layer in stage.layers]
        parts += [_loss_flops(spec)] if stage.last else []
        found.append(
            StageSeconds(
                sum(one.forward for one in parts) / unit,
                sum(one.input for one in parts) / unit,
                sum(one.weight for one in parts) / unit,
            )
        )
    return found


class _Flops(StageSeconds):
    """Of a token: forward, for the input's gradient, for the weights' gradients."""

    @property
    def total(self) -> float:
        return self.forward + self.input + self.weight


def _layer_flops(spec: RunSpec, layer: int) -> _Flops:
    products = 2.0 * sum(block_weights(spec)[:7])
    mixing = 4.0 * spec.model.heads * spec.model.features_per_head * spec.batch.sequence_tokens
    mixing /= spec.parallelism.tensor
    again = products + mixing if form_of(spec, layer).recompute is RecomputeKind.FULL else 0.0
    return _Flops(products + mixing, products + 2 * mixing + again, products)


def _loss_flops(spec: RunSpec) -> _Flops:
    """The head's product; a loss in chunks makes its gradients at once, in the forward pass."""
    product = 2.0 * spec.data.tokenizer.size * spec.model.width / spec.parallelism.tensor
    tokens = spec.batch.micro_sequences * spec.batch.sequence_tokens
    if tokens > spec.memory.loss_chunk_tokens or spec.parallelism.tensor > 1:
        return _Flops(3 * product, 0.0, 0.0)
    return _Flops(product, product, product)


def _plain_layer(spec: RunSpec) -> float:
    return _layer_flops(spec, 0).forward


def _costs(spec: RunSpec, compiled: bool) -> list[StageCost]:
    """What each stage costs, with each number of layers that it may get."""
    pipeline = pipeline_of(spec)
    most = [_most_kept(pipeline, rank) for rank in range(pipeline.ranks)]
    block = _even_bytes(spec, block_weights(spec))
    found = []
    for number in range(pipeline.stages):
        rank = pipeline.rank_of(number)
        whole, deferred = most[rank].get(number, Kept(0, 0))
        first, last = number == 0, number == pipeline.stages - 1
        layer_bytes = [
            block + sum(stage_bytes(spec, _alone(layer, first, last), whole, deferred, compiled))
            for layer in range(spec.model.layers)
        ]
        between = sum(stage_bytes(spec, StageLayers(number, range(0), first, last), whole, 0, compiled))
        beside = _even_bytes(spec, _ends_beside(spec, pipeline, number)) + between + transfer_bytes(spec)
        beside += loss_bytes(spec, compiled) if last else 0
        flops = _loss_flops(spec).total if last else 0.0
        found.append(StageCost(rank, flops, beside, tuple(size - between for size in layer_bytes)))
    return found


def _ends_beside(spec: RunSpec, pipeline: Pipeline, number: int) -> list[int]:
    """Tensors of the model's ends that a stage adds to its rank: a tied embedding is there once, though two stages use it."""
    rank, last = pipeline.rank_of(number), pipeline.stages - 1
    ends = end_weights(spec, number == 0, number == last)
    if number == 0 or number != last or pipeline.rank_of(0) != rank:
        return ends
    return ends[1:] if spec.model.tied_embeddings else ends


def _alone(layer: int, first: bool, last: bool) -> StageLayers:
    return StageLayers(0, range(layer, layer + 1), first, last)


def _even_bytes(spec: RunSpec, tensors: list[int]) -> int:
    """Weights, gradients and states of ``tensors`` where they are many enough to be shared evenly."""
    ranks = spec.degrees.data
    return static_memory(spec, tensors * ranks).total // ranks if tensors else 0


def _most_kept(pipeline: Pipeline, rank: int) -> dict[int, Kept]:
    """What a rank keeps of its stages at the moment when that is most."""
    return max(kept(orders(pipeline)[rank]), key=lambda moment: sum(sum(one) for one in moment.values()))


def _timeline(spec: RunSpec, layers: Sequence[int]) -> tuple[list[list[PlannedAction]], float]:
    """The beginning of a step as far as it can be shown, and the bubble of the whole step."""
    chosen, rounds = spec.parallelism, spec.accumulation_rounds
    kinds = 3 if chosen.schedule.is_zero_bubble else 2
    fitting = _MOST_ACTIONS // (chosen.stage_count * kinds) // chosen.pipeline * chosen.pipeline
    shown = min(rounds, max(2 * chosen.pipeline, fitting))
    pipeline = Pipeline(chosen.schedule, chosen.pipeline, chosen.chunks, shown)
    times = stage_times(spec, layers)
    timeline = simulate(pipeline, times)
    # Once the pipeline is full, a micro batch more takes as long as the slowest rank works on it.
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


def _told(rank: int, memory: RankMemory) -> PlannedMemory:
    return PlannedMemory(rank=rank, total=memory.total, **vars(memory))


def _too_large(memory: Sequence[RankMemory], slot: Slot, cuda: bool) -> list[str]:
    """A sentence where ranks need more than ``slot`` has. What a CPU's rank puts on the host lies in the same memory."""
    needs = [one.total if cuda else one.total + one.host for one in memory]
    over = [rank for rank, need in enumerate(needs) if need > slot.bytes]
    if not over:
        return []
    who = f"Pipeline rank {over[0]}" if len(over) < len(memory) else "Each rank"
    if 1 < len(over) < len(memory):
        who = f"Each of pipeline ranks {', '.join(map(str, over))}"
    has = "a GPU has" if cuda else "a slot's share of the memory is"
    return [
        f"{who} needs up to {_gib(max(needs))}, and on {slot.node} {has} {_gib(slot.bytes)}: the run may end for want of memory. "
        "Use more ranks with parallelism.pipeline, tensor or zero_stage, memory.recompute, or a smaller batch.micro_sequences."
    ]


def _too_large_for_host(spec: RunSpec, host: Host) -> list[str]:
    """A sentence where what GPU ranks offload is more than the memory of any node that could run them."""
    needed = host_bytes_per_node(spec)
    if needed <= host.bytes:
        return []
    return [
        f"Offload takes {_gib(needed)} of the node's own memory, and the largest node for this run, {host.node}, has "
        f"{_gib(host.bytes)}: the run may end for want of it. Use less parallelism.offload, or a node with more memory."
    ]


def _gib(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB"
