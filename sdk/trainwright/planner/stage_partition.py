"""Partition of the layers into pipeline stages: the slowest rank is as fast as possible, and no rank runs out of memory.

A pipeline is as fast as its slowest rank. Ranks differ in speed if their devices do. They differ in memory, because
1F1B stores min(m, p - i) micro batches on rank i, so the first ranks need more. The first stage also has the embedding,
and the last one the loss, which costs as much as several layers if the vocabulary is large.

With one stage per rank this is a dynamic program over (stage, layers assigned): for the first s stages and k
layers it takes the best number of layers for the last of these stages. A second pass makes the other stages
as equal as the slowest one allows. Both are exact. With several stages per rank, a rank's memory and time are
sums over stages that are not adjacent, which dynamic programming cannot express. All layers are then treated as
equal (mean time, largest memory), and only the number of layers of each stage is searched for. That is exact
if layers are equal, which they are except for ``recompute_layers`` and the bfloat16 layers of FP8 runs, and
it never accepts a partition that does not fit.

Yuan 2.0 (section 4) partitions by hand with a time model; the optimizer here is our own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

from trainwright.contracts.layout_rules import even_stages

_EQUAL = 1e-12
"""Times with a smaller relative difference differ only by rounding."""


@dataclass(frozen=True)
class RankCapacity:
    """Speed and memory of a pipeline rank: the worst of its data and tensor ranks."""

    speed: float = 1.0
    """Speed in FLOP/s, or in any other unit that all ranks share."""

    memory_bytes: int | None = None
    """None if unknown: then everything fits."""


@dataclass(frozen=True)
class StageCost:
    """Cost of a stage on its rank."""

    rank: int
    flops: float
    """FLOPs without its layers."""

    bytes: int
    """Bytes without its layers."""

    layer_bytes: tuple[int, ...]
    """Bytes of each layer of the model if it were in this stage."""


class DoesNotFitError(ValueError):
    """No partition fits into the memory of the ranks."""


def partition_stages(
    layer_flops: Sequence[float], stages: Sequence[StageCost], capacities: Sequence[RankCapacity]
) -> tuple[int, ...]:
    """Return the number of layers of each stage, at least 1.

    Args:
        layer_flops: forward and backward FLOPs of each layer.
        stages: in the order of the forward pass.
        capacities: one for each pipeline rank.

    Raises:
        DoesNotFitError: naming a stage and how many bytes are missing.
    """
    if len(stages) == len(capacities):
        return _one_stage_per_rank(layer_flops, stages, capacities)
    return _several_stages_per_rank(layer_flops, stages, capacities)


def slowest_rank_time(
    layers: Sequence[int],
    layer_flops: Sequence[float],
    stages: Sequence[StageCost],
    capacities: Sequence[RankCapacity],
) -> float:
    """Time of the slowest rank: its FLOPs ÷ its speed."""
    times = [0.0] * len(capacities)
    begin = 0
    for count, stage in zip(layers, stages, strict=True):
        flops = sum(layer_flops[begin : begin + count]) + stage.flops
        times[stage.rank] += flops / capacities[stage.rank].speed
        begin += count
    return max(times)


def rank_bytes(layers: Sequence[int], stages: Sequence[StageCost], ranks: int) -> list[int]:
    """Bytes that each rank needs."""
    found = [0] * ranks
    begin = 0
    for count, stage in zip(layers, stages, strict=True):
        found[stage.rank] += sum(stage.layer_bytes[begin : begin + count]) + stage.bytes
        begin += count
    return found


def _one_stage_per_rank(
    layer_flops: Sequence[float], stages: Sequence[StageCost], capacities: Sequence[RankCapacity]
) -> tuple[int, ...]:
    table = _TimeTable(layer_flops, stages, capacities)
    first = _dynamic_program(table, max, _time_of_even_stages(table))
    if first is None:
        raise DoesNotFitError(_shortage(layer_flops, stages, capacities))
    limit = max(table.time(stage, begin, end) for stage, (begin, end) in enumerate(_bounds(first)))
    evened = _dynamic_program(table, lambda so_far, time: so_far + time * time, limit)
    assert evened is not None
    return evened


class _TimeTable:
    """Time of each stage for each range of layers; infinite if it does not fit."""

    def __init__(
        self, layer_flops: Sequence[float], stages: Sequence[StageCost], capacities: Sequence[RankCapacity]
    ) -> None:
        self.layers, self.stages = len(layer_flops), len(stages)
        self._stages, self._holders = stages, capacities
        self._flops = [0.0, *accumulate(layer_flops)]
        self._bytes = [[0, *accumulate(stage.layer_bytes)] for stage in stages]

    def time(self, stage: int, begin: int, end: int) -> float:
        cost = self._stages[stage]
        rank = self._holders[cost.rank]
        size = self._bytes[stage][end] - self._bytes[stage][begin] + cost.bytes
        if rank.memory_bytes is not None and size > rank.memory_bytes:
            return math.inf
        return (self._flops[end] - self._flops[begin] + cost.flops) / rank.speed


class _Best(NamedTuple):
    """The best assignment of the first layers to the first stages."""

    cost: float
    begin: int
    """First layer of the last of these stages."""


def _dynamic_program(
    table: _TimeTable, combine: Callable[[float, float], float], limit: float
) -> tuple[int, ...] | None:
    """The partition with the least combined time, no stage taking longer than ``limit``; None if there is none.

    Among equally good partitions it returns one whose last stages have fewer layers.
    """
    ways: list[dict[int, _Best]] = [{0: _Best(0.0, 0)}]
    for stage in range(table.stages):
        after: dict[int, _Best] = {}
        left = table.stages - stage - 1
        for begin, (so_far, _) in ways[-1].items():
            for end in range(begin + 1, table.layers - left + 1):
                time = table.time(stage, begin, end)
                if (
                    time > limit or time == math.inf
                ):  # more layers take longer and need at least as much memory
                    break
                cost = combine(so_far, time)
                if end not in after or cost < after[end].cost * (1 + _EQUAL):
                    after[end] = _Best(min(cost, after[end].cost) if end in after else cost, begin)
        ways.append(dict(sorted(after.items())))
    return _backtrack(ways, table.layers)


def _backtrack(ways: Sequence[dict[int, _Best]], layers: int) -> tuple[int, ...] | None:
    if layers not in ways[-1]:
        return None
    counts, end = [], layers
    for stage in reversed(ways[1:]):
        begin = stage[end].begin
        counts.append(end - begin)
        end = begin
    return tuple(reversed(counts))


def _time_of_even_stages(table: _TimeTable) -> float:
    """Time of the slowest stage of the even partition: an upper bound for the best one."""
    even = enumerate(_bounds(even_stages(table.layers, table.stages)))
    return max(table.time(stage, begin, end) for stage, (begin, end) in even)


def _bounds(layers: Sequence[int]) -> list[tuple[int, int]]:
    return list(pairwise([0, *accumulate(layers)]))


def _several_stages_per_rank(
    layer_flops: Sequence[float], stages: Sequence[StageCost], capacities: Sequence[RankCapacity]
) -> tuple[int, ...]:
    """Search for the least time in which the ranks can process all layers, within their memory."""
    ranks = [_RankStages(layer_flops, stages, number, rank) for number, rank in enumerate(capacities)]
    if sum(rank.most(math.inf) for rank in ranks) < len(layer_flops) or any(
        not rank.fits_one_each for rank in ranks
    ):
        raise DoesNotFitError(_shortage(layer_flops, stages, capacities))
    times = sorted({rank.time(count) for rank in ranks for count in rank.counts(len(layer_flops))})
    low, high = 0, len(times) - 1
    while low < high:
        middle = (low + high) // 2
        if _ranks_hold(ranks, times[middle], len(layer_flops)):
            high = middle
        else:
            low = middle + 1
    shares = _layers_of_ranks(ranks, times[low], len(layer_flops))
    counts = [0] * len(stages)
    for rank, share in zip(ranks, shares, strict=True):
        for stage, count in rank.shared(share).items():
            counts[stage] = count
    return tuple(counts)


class _RankStages:
    """The stages of one rank, with all layers treated as equal."""

    def __init__(
        self, layer_flops: Sequence[float], stages: Sequence[StageCost], number: int, rank: RankCapacity
    ) -> None:
        self._own = {place: stage for place, stage in enumerate(stages) if stage.rank == number}
        self._layer_time = sum(layer_flops) / len(layer_flops) / rank.speed
        self._beside = sum(stage.flops for stage in self._own.values()) / rank.speed
        self._sizes = {place: max(stage.layer_bytes) for place, stage in self._own.items()}
        room = math.inf if rank.memory_bytes is None else rank.memory_bytes
        one_each = sum(stage.bytes + max(stage.layer_bytes) for stage in self._own.values())
        self._left = room - one_each
        """Bytes left when each stage has one layer."""
        self._layers = len(layer_flops)

    @property
    def fits_one_each(self) -> bool:
        return self._left >= 0

    @property
    def least(self) -> int:
        return len(self._own)

    def time(self, count: int) -> float:
        return self._beside + count * self._layer_time

    def counts(self, layers: int) -> range:
        return range(self.least, layers + 1)

    def most(self, time: float) -> int:
        """Most layers within memory and ``time``; fewer than one per stage if even that does not fit."""
        cheapest = min(self._sizes.values())
        more = self._layers if math.isinf(self._left) or not cheapest else int(self._left // cheapest)
        fast = self._layers
        while fast and self.time(fast) > time:
            fast -= 1
        return min(self._layers, self.least + more, fast)

    def shared(self, count: int) -> dict[int, int]:
        """Distribute ``count`` layers over the rank's stages, as evenly as memory allows, earlier stages first."""
        given = dict.fromkeys(self._own, 1)
        left = self._left
        for still in range(count - self.least, 0, -1):
            cheapest = min(self._sizes.values())
            fitting = [place for place in given if self._sizes[place] + (still - 1) * cheapest <= left]
            place = min(fitting, key=lambda index: (given[index], index))
            given[place] += 1
            left -= self._sizes[place]
        return given


def _ranks_hold(ranks: Sequence[_RankStages], time: float, layers: int) -> bool:
    most = [rank.most(time) for rank in ranks]
    return sum(most) >= layers and all(one >= rank.least for one, rank in zip(most, ranks, strict=True))


def _layers_of_ranks(ranks: Sequence[_RankStages], time: float, layers: int) -> list[int]:
    """Layers of each rank: as many as ``time`` allows, then taken one by one from the slowest rank."""
    shares = [rank.most(time) for rank in ranks]
    while sum(shares) > layers:
        busy = [place for place, rank in enumerate(ranks) if shares[place] > rank.least]
        slowest_rank = max(busy, key=lambda place: (ranks[place].time(shares[place]), place))
        shares[slowest_rank] -= 1
    return shares


def _shortage(
    layer_flops: Sequence[float], stages: Sequence[StageCost], capacities: Sequence[RankCapacity]
) -> str:
    """The stages that need more memory, and how much, in the partition that comes closest to fitting."""
    layers = _least_short(len(layer_flops), stages, capacities)
    sizes = rank_bytes(layers, stages, len(capacities))
    lacks = [
        size - rank.memory_bytes if rank.memory_bytes is not None else -math.inf
        for size, rank in zip(sizes, capacities, strict=True)
    ]
    rank = lacks.index(max(lacks))
    own = [place for place, stage in enumerate(stages) if stage.rank == rank]
    named = " and ".join(str(place) for place in own)
    word = "stages" if len(own) > 1 else "stage"
    held = "+".join(str(layers[place]) for place in own)
    return (
        f"{word} {named} with {held} layers needs {sizes[rank]:,} bytes on pipeline rank {rank}, which has "
        f"{capacities[rank].memory_bytes:,}: {lacks[rank]:,} bytes are missing even with layers placed where most memory is free"
    )


def _least_short(layers: int, stages: Sequence[StageCost], capacities: Sequence[RankCapacity]) -> list[int]:
    """Give each layer to the stage whose rank then has most memory left."""
    counts = [1] * len(stages)
    room = [
        math.inf if capacity.memory_bytes is None else float(capacity.memory_bytes) for capacity in capacities
    ]
    for stage in stages:
        room[stage.rank] -= stage.bytes + max(stage.layer_bytes)
    for _ in range(layers - len(stages)):
        place = max(
            range(len(stages)), key=lambda index: room[stages[index].rank] - max(stages[index].layer_bytes)
        )
        counts[place] += 1
        room[stages[place].rank] -= max(stages[place].layer_bytes)
    return counts
