"""The chosen split is compared with all possible splits."""

import math
from itertools import combinations, pairwise
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainwright.planner.stage_partition import (
    DoesNotFitError,
    RankCapacity,
    StageCost,
    partition_stages,
    rank_bytes,
    slowest_rank_time,
)


class Case(NamedTuple):
    layer_flops: list[float]
    stages: list[StageCost]
    capacities: list[RankCapacity]

    def all_splits(self) -> list[tuple[int, ...]]:
        """Try every way to split the layers."""
        layers = len(self.layer_flops)
        return [
            tuple(end - begin for begin, end in pairwise((0, *cuts, layers)))
            for cuts in combinations(range(1, layers), len(self.stages) - 1)
        ]

    def fits(self, layers: tuple[int, ...]) -> bool:
        sizes = rank_bytes(layers, self.stages, len(self.capacities))
        return all(
            one.memory_bytes is None or size <= one.memory_bytes
            for size, one in zip(sizes, self.capacities, strict=True)
        )

    def time(self, layers: tuple[int, ...]) -> float:
        return slowest_rank_time(layers, self.layer_flops, self.stages, self.capacities)

    def best(self) -> float:
        return min((self.time(split) for split in self.all_splits() if self.fits(split)), default=math.inf)


@st.composite
def cases(draw: st.DrawFn, chunks: int = 1, v_shaped: bool = False) -> Case:
    ranks = draw(st.integers(1 if chunks == 1 else 2, 4 if chunks == 1 else 3))
    count = ranks * chunks
    layers = draw(st.integers(count, count + 5))
    number = st.integers(0, 9)
    if chunks == 1:
        flops = draw(st.lists(st.integers(1, 9), min_size=layers, max_size=layers))
    else:
        flops = [draw(st.integers(1, 9))] * layers
    stages = []
    for stage in range(count):
        lap, place = divmod(stage, ranks)
        rank = ranks - 1 - place if v_shaped and lap % 2 else place
        if chunks == 1:
            sizes = draw(st.lists(number, min_size=layers, max_size=layers))
        else:
            sizes = [draw(number)] * layers
        stages.append(StageCost(rank, float(draw(number)), draw(number), tuple(sizes)))
    memory = st.one_of(st.none(), st.integers(0, 60))
    capacities = [RankCapacity(float(draw(st.integers(1, 4))), draw(memory)) for _ in range(ranks)]
    return Case([float(item) for item in flops], stages, capacities)


def check(case: Case) -> None:
    best = case.best()
    if best == math.inf:
        with pytest.raises(DoesNotFitError, match=r"stages? .* needs .* bytes .* missing"):
            partition_stages(*case)
        return
    found = partition_stages(*case)
    assert sum(found) == len(case.layer_flops) and min(found) >= 1
    assert case.fits(found)
    assert case.time(found) == pytest.approx(best)


@settings(max_examples=400, deadline=None)
@given(cases())
def test_a_split_is_as_fast_as_the_best_possible_one(case: Case) -> None:
    check(case)


@settings(max_examples=300, deadline=None)
@given(cases(chunks=2), cases(chunks=2, v_shaped=True))
def test_a_split_with_two_stages_per_rank_is_as_fast_as_the_best_possible_one(
    loop: Case, v_shaped: Case
) -> None:
    check(loop)
    check(v_shaped)


def plain(stages: int, layers: int, **of_last: float) -> list[StageCost]:
    return [
        StageCost(stage, of_last.get("flops", 0.0) if stage == stages - 1 else 0.0, 0, (1,) * layers)
        for stage in range(stages)
    ]


def test_uneven_layers_go_to_the_early_stages() -> None:
    assert partition_stages([1.0] * 8, plain(3, 8), [RankCapacity()] * 3) == (3, 3, 2)


def test_the_loss_counts_like_layers() -> None:
    assert partition_stages([1.0] * 7, plain(3, 7, flops=2.0), [RankCapacity()] * 3) == (3, 3, 1)
    assert partition_stages([1.0] * 10, plain(3, 10, flops=2.0), [RankCapacity()] * 3) == (4, 4, 2)


def test_a_slow_rank_gets_fewer_layers() -> None:
    assert partition_stages([1.0] * 9, plain(3, 9), [RankCapacity(), RankCapacity(0.5), RankCapacity()]) == (
        4,
        1,
        4,
    )


def test_a_rank_with_little_memory_gets_fewer_layers_or_an_error_with_the_missing_bytes() -> None:
    assert partition_stages(
        [1.0] * 9, plain(3, 9), [RankCapacity(), RankCapacity(1.0, 1), RankCapacity()]
    ) == (4, 1, 4)
    with pytest.raises(
        DoesNotFitError, match="stage 1 with 1 layers needs 1 bytes on pipeline rank 1, which has 0"
    ):
        partition_stages([1.0] * 9, plain(3, 9), [RankCapacity(), RankCapacity(1.0, 0), RankCapacity()])


def test_activations_of_1f1b_move_layers_to_the_later_stages() -> None:
    """24 layers on 8 stages. Stage i holds 8 - i micro batches, so 3 layers do not fit on the first."""
    stages = [StageCost(stage, 0.0, 0, (8 - stage,) * 24) for stage in range(8)]
    found = partition_stages([1.0] * 24, stages, [RankCapacity(1.0, 20)] * 8)
    assert found[0] == 2 and max(found) == 4
    assert rank_bytes(found, stages, 8)[0] == 16


def test_a_large_model_is_split_quickly() -> None:
    assert partition_stages([1.0] * 512, plain(64, 512), [RankCapacity()] * 64) == (8,) * 64
