"""Which layers each stage of a pipeline gets, so that the slowest rank is as fast as can be and no rank runs out of memory.

A pipeline goes at the pace of its slowest rank. Ranks differ: in speed, where their devices do; in memory, of which
the first ones need more, for 1F1B keeps min(m, p - i) micro batches on rank i; and in what they have beside layers, the first
stage the embedding and the last one the loss, which costs as much as some layers where the vocabulary is large.

With one stage a rank this is a dynamic program over (stage, layers that are given out): the slowest of the first s stages
over k layers is the better of all ways to give the last of them some. A second pass makes the other stages as equal as
the slowest allows. Both are exact. With several stages a rank, memory and time of a rank are sums over stages that do not follow
each other, which no such program sees; there layers count as alike (mean time, largest memory), so that all that is to
be found is how many each stage gets. That is exact where layers are alike, which they are but for ``recompute_layers``
and FP8's high layers, and never says that something fits which does not.

Yuan 2.0 (section 4) splits by hand with a time model; the optimiser here is ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

from trainwright.contracts.layout_rules import stages_even

_EQUAL = 1e-12
"""Times that differ by less, relatively, differ by rounding only."""


@dataclass(frozen=True)
class Holder:
    """A rank of the pipeline; of several data and tensor ranks, the worst."""

    speed: float = 1.0
    """FLOP/s, or any measure that is one for all."""

    memory_bytes: int | None = None
    """None where unknown: then nothing is too large."""


@dataclass(frozen=True)
class StageCost:
    """What a stage costs on the rank that holds it."""

    holder: int
    flops: float
    """Beside its layers."""

    bytes: int
    """Beside its layers."""

    layer_bytes: tuple[int, ...]
    """Of each layer of the model, if this stage had it."""


class DoesNotFitError(ValueError):
    """No split fits into the memory of the ranks."""


def split(
    layer_flops: Sequence[float], stages: Sequence[StageCost], holders: Sequence[Holder]
) -> tuple[int, ...]:
    """Layers of each stage, at least 1.

    Args:
        layer_flops: of each layer, forward and backward.
        stages: in the order of the forward pass.
        holders: the ranks of the pipeline.

    Raises:
        DoesNotFitError: naming a stage and the bytes that it lacks.
    """
    if len(stages) == len(holders):
        return _one_each(layer_flops, stages, holders)
    return _several_each(layer_flops, stages, holders)


def slowest(
    layers: Sequence[int],
    layer_flops: Sequence[float],
    stages: Sequence[StageCost],
    holders: Sequence[Holder],
) -> float:
    """Time of the slowest rank, in FLOPs over its speed."""
    times = [0.0] * len(holders)
    begin = 0
    for count, stage in zip(layers, stages, strict=True):
        flops = sum(layer_flops[begin : begin + count]) + stage.flops
        times[stage.holder] += flops / holders[stage.holder].speed
        begin += count
    return max(times)


def needed(layers: Sequence[int], stages: Sequence[StageCost], ranks: int) -> list[int]:
    """Bytes of each rank."""
    found = [0] * ranks
    begin = 0
    for count, stage in zip(layers, stages, strict=True):
        found[stage.holder] += sum(stage.layer_bytes[begin : begin + count]) + stage.bytes
        begin += count
    return found


def _one_each(
    layer_flops: Sequence[float], stages: Sequence[StageCost], holders: Sequence[Holder]
) -> tuple[int, ...]:
    table = _Table(layer_flops, stages, holders)
    first = _program(table, max, _of_even(table))
    if first is None:
        raise DoesNotFitError(_why(layer_flops, stages, holders))
    limit = max(table.time(stage, begin, end) for stage, (begin, end) in enumerate(_bounds(first)))
    evened = _program(table, lambda so_far, time: so_far + time * time, limit)
    assert evened is not None
    return evened


class _Table:
    """Time of each stage over each stretch of layers; infinite where it does not fit."""

    def __init__(
        self, layer_flops: Sequence[float], stages: Sequence[StageCost], holders: Sequence[Holder]
    ) -> None:
        self.layers, self.stages = len(layer_flops), len(stages)
        self._stages, self._holders = stages, holders
        self._flops = [0.0, *accumulate(layer_flops)]
        self._bytes = [[0, *accumulate(stage.layer_bytes)] for stage in stages]

    def time(self, stage: int, begin: int, end: int) -> float:
        cost = self._stages[stage]
        holder = self._holders[cost.holder]
        size = self._bytes[stage][end] - self._bytes[stage][begin] + cost.bytes
        if holder.memory_bytes is not None and size > holder.memory_bytes:
            return math.inf
        return (self._flops[end] - self._flops[begin] + cost.flops) / holder.speed


class _Way(NamedTuple):
    """The best way to give the first layers to the first stages."""

    cost: float
    begin: int
    """Where the last of these stages begins."""


def _program(table: _Table, joined: Callable[[float, float], float], limit: float) -> tuple[int, ...] | None:
    """The split whose stages' times, none above ``limit``, join to the least; None where there is none.

    Of splits as good as each other it is one whose last stages have fewer layers.
    """
    ways: list[dict[int, _Way]] = [{0: _Way(0.0, 0)}]
    for stage in range(table.stages):
        after: dict[int, _Way] = {}
        left = table.stages - stage - 1
        for begin, (so_far, _) in ways[-1].items():
            for end in range(begin + 1, table.layers - left + 1):
                time = table.time(stage, begin, end)
                if time > limit or time == math.inf:  # more layers take longer, and no less memory
                    break
                cost = joined(so_far, time)
                if end not in after or cost < after[end].cost * (1 + _EQUAL):
                    after[end] = _Way(min(cost, after[end].cost) if end in after else cost, begin)
        ways.append(dict(sorted(after.items())))
    return _followed(ways, table.layers)


def _followed(ways: Sequence[dict[int, _Way]], layers: int) -> tuple[int, ...] | None:
    if layers not in ways[-1]:
        return None
    counts, end = [], layers
    for stage in reversed(ways[1:]):
        begin = stage[end].begin
        counts.append(end - begin)
        end = begin
    return tuple(reversed(counts))


def _of_even(table: _Table) -> float:
    """Time of the slowest stage of the even split, which the best one need not pass."""
    even = enumerate(_bounds(stages_even(table.layers, table.stages)))
    return max(table.time(stage, begin, end) for stage, (begin, end) in even)


def _bounds(layers: Sequence[int]) -> list[tuple[int, int]]:
    return list(pairwise([0, *accumulate(layers)]))


def _several_each(
    layer_flops: Sequence[float], stages: Sequence[StageCost], holders: Sequence[Holder]
) -> tuple[int, ...]:
    """Search the least time at which the ranks can hold all layers, each as many as time and memory let it."""
    ranks = [_Rank(layer_flops, stages, number, holder) for number, holder in enumerate(holders)]
    if sum(rank.most(math.inf) for rank in ranks) < len(layer_flops) or any(
        not rank.fits_one_each for rank in ranks
    ):
        raise DoesNotFitError(_why(layer_flops, stages, holders))
    times = sorted({rank.time(count) for rank in ranks for count in rank.counts(len(layer_flops))})
    low, high = 0, len(times) - 1
    while low < high:
        middle = (low + high) // 2
        if _hold(ranks, times[middle], len(layer_flops)):
            high = middle
        else:
            low = middle + 1
    shares = _shares(ranks, times[low], len(layer_flops))
    counts = [0] * len(stages)
    for rank, share in zip(ranks, shares, strict=True):
        for stage, count in rank.shared(share).items():
            counts[stage] = count
    return tuple(counts)


class _Rank:
    """A rank with several stages, whose layers are alike."""

    def __init__(
        self, layer_flops: Sequence[float], stages: Sequence[StageCost], number: int, holder: Holder
    ) -> None:
        self._own = {place: stage for place, stage in enumerate(stages) if stage.holder == number}
        self._layer_time = sum(layer_flops) / len(layer_flops) / holder.speed
        self._beside = sum(stage.flops for stage in self._own.values()) / holder.speed
        self._sizes = {place: max(stage.layer_bytes) for place, stage in self._own.items()}
        room = math.inf if holder.memory_bytes is None else holder.memory_bytes
        one_each = sum(stage.bytes + max(stage.layer_bytes) for stage in self._own.values())
        self._left = room - one_each
        """Bytes, when each stage has a layer."""
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
        """Layers that memory and ``time`` leave room for; fewer than one a stage where there is none."""
        cheapest = min(self._sizes.values())
        more = self._layers if math.isinf(self._left) or not cheapest else int(self._left // cheapest)
        fast = self._layers
        while fast and self.time(fast) > time:
            fast -= 1
        return min(self._layers, self.least + more, fast)

    def shared(self, count: int) -> dict[int, int]:
        """``count`` layers over the rank's stages, evenly as far as memory lets them, the early ones first."""
        given = dict.fromkeys(self._own, 1)
        left = self._left
        for still in range(count - self.least, 0, -1):
            cheapest = min(self._sizes.values())
            fitting = [place for place in given if self._sizes[place] + (still - 1) * cheapest <= left]
            place = min(fitting, key=lambda one: (given[one], one))
            given[place] += 1
            left -= self._sizes[place]
        return given


def _hold(ranks: Sequence[_Rank], time: float, layers: int) -> bool:
    most = [rank.most(time) for rank in ranks]
    return sum(most) >= layers and all(one >= rank.least for one, rank in zip(most, ranks, strict=True))


def _shares(ranks: Sequence[_Rank], time: float, layers: int) -> list[int]:
    """Layers of each rank: as many as ``time`` allows, less one at a time from whoever is slowest."""
    shares = [rank.most(time) for rank in ranks]
    while sum(shares) > layers:
        busy = [place for place, rank in enumerate(ranks) if shares[place] > rank.least]
        slowest_rank = max(busy, key=lambda place: (ranks[place].time(shares[place]), place))
        shares[slowest_rank] -= 1
    return shares


def _why(layer_flops: Sequence[float], stages: Sequence[StageCost], holders: Sequence[Holder]) -> str:
    """What lacks how much, in the split that comes nearest to fitting: as even as can be, by memory."""
    layers = _least_lacking(len(layer_flops), stages, holders)
    sizes = needed(layers, stages, len(holders))
    lacks = [
        size - holder.memory_bytes if holder.memory_bytes is not None else -math.inf
        for size, holder in zip(sizes, holders, strict=True)
    ]
    rank = lacks.index(max(lacks))
    own = [place for place, stage in enumerate(stages) if stage.holder == rank]
    named = " and ".join(str(place) for place in own)
    word = "stages" if len(own) > 1 else "stage"
    held = "+".join(str(layers[place]) for place in own)
    return (
        f"{word} {named} with {held} layers needs {sizes[rank]:,} bytes on pipeline rank {rank}, which has "
        f"{holders[rank].memory_bytes:,}: {lacks[rank]:,} bytes are lacking even when layers go where most room is"
    )


def _least_lacking(layers: int, stages: Sequence[StageCost], holders: Sequence[Holder]) -> list[int]:
    """Give each layer to the stage whose rank then has most room left."""
    counts = [1] * len(stages)
    room = [math.inf if one.memory_bytes is None else float(one.memory_bytes) for one in holders]
    for stage in stages:
        room[stage.holder] -= stage.bytes + max(stage.layer_bytes)
    for _ in range(layers - len(stages)):
        place = max(
            range(len(stages)), key=lambda one: room[stages[one].holder] - max(stages[one].layer_bytes)
        )
        counts[place] += 1
        room[stages[place].holder] -= max(stages[place].layer_bytes)
    return counts
