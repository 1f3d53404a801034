"""Finding the rank that the others wait for, from the progress of all ranks."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from trainwright.contracts.parallelism_spec import Degrees
from trainwright.contracts.rank_progress import AxisCount, AxisName, Operation, RankActivity, RankProgress
from trainwright_backend.attempts.hang_diagnosis import PlacedRank, diagnose

DATA, TENSOR, WORLD, PIPELINE = AxisName.DATA, AxisName.TENSOR, AxisName.WORLD, AxisName.PIPELINE
Counts = Mapping[AxisName, tuple[int, int]]
"""Collectives entered and left, by axis."""


def at(
    counts: Counts | None = None,
    *,
    node: str = "node-a",
    step: int = 12,
    sections: int = 40,
    stopped: bool = False,
    activity: RankActivity = RankActivity.STEP,
) -> PlacedRank:
    axes = [
        AxisCount(axis=axis, entered=entered, left=left, operations=[Operation.ALL_REDUCE] * min(entered, 16))
        for axis, (entered, left) in (counts or {}).items()
    ]
    progress = RankProgress(step=step, activity=activity, sections=sections, axes=axes)
    return PlacedRank(node, progress, stopped)


@dataclass(frozen=True)
class Case:
    degrees: Degrees
    ranks: dict[int, PlacedRank]
    culprits: tuple[int, ...]
    says: list[str] = field(default_factory=list)


CASES = {
    "one data rank has not arrived": Case(
        Degrees(replicas=4),
        {
            0: at({DATA: (57, 56)}),
            1: at({DATA: (57, 56)}),
            2: at({DATA: (56, 56)}, node="node-b"),
            3: at({DATA: (57, 56)}, node="node-b"),
        },
        (2,),
        [
            "Rank 2 on node-b has not arrived at all_reduce 57 of the data axis",
            "where ranks 0, 1, 3 wait",
            "step 12",
        ],
    ),
    "a rank whose tensor peer has not arrived keeps others waiting, and is not the cause": Case(
        Degrees(replicas=2, tensor=2),  # data lines 0-2 and 1-3, tensor lines 0-1 and 2-3
        {
            0: at({DATA: (5, 4), TENSOR: (80, 80)}),
            1: at({DATA: (5, 4), TENSOR: (80, 80)}),
            2: at({DATA: (4, 4), TENSOR: (70, 69)}),
            3: at({DATA: (4, 4), TENSOR: (69, 69)}, node="node-b"),
        },
        (3,),
        [
            "Rank 3 on node-b has not arrived at all_reduce 70 of the tensor axis, where rank 2 waits",
            "data axis",
        ],
    ),
    "GPUs: hosts run ahead, and no rank is inside a collective": Case(
        Degrees(replicas=2),
        {0: at({DATA: (63, 63)}), 1: at({DATA: (57, 57)}, node="node-b")},
        (1,),
        ["Rank 1 on node-b has not arrived at all_reduce 58 of the data axis"],
    ),
    "a rank that is stopped inside a collective": Case(
        Degrees(replicas=2),
        {0: at({DATA: (57, 56)}), 1: at({DATA: (57, 56)}, stopped=True, node="node-b")},
        (1,),
        ["Rank 1 on node-b is at all_reduce 57 of the data axis in step 12", "Its process is stopped."],
    ),
    "a rank that is stopped while it saves": Case(
        Degrees(replicas=2),
        {
            0: at({DATA: (58, 57)}, step=21),
            1: at({DATA: (57, 57)}, step=20, stopped=True, activity=RankActivity.SAVING),
        },
        (1,),
        [
            "all_reduce 58 of the data axis",
            "It is saving the checkpoint of step 20.",
            "Its process is stopped.",
        ],
    ),
    "two that wait for each other": Case(
        Degrees(replicas=2, tensor=2),
        {
            0: at({DATA: (5, 4), TENSOR: (9, 9)}),
            1: at({DATA: (4, 4), TENSOR: (10, 9)}),
            2: at({DATA: (4, 4), TENSOR: (10, 9)}),
            3: at({DATA: (5, 4), TENSOR: (9, 9)}),
        },
        (0, 1, 2, 3),
        ["tensor axis", "data axis"],
    ),
    "a library's collectives: the rank that has ended fewer sections": Case(
        Degrees(shard=2),
        {0: at(sections=41), 1: at(sections=40, node="node-b")},
        (1,),
        ["Rank 1 on node-b is behind the ranks with the same layers in step 12"],
    ),
    "ranks of other stages end other numbers of sections": Case(
        Degrees(pipeline=2, replicas=2),
        {0: at(sections=80), 1: at(sections=80), 2: at(sections=40), 3: at(sections=39)},
        (3,),
    ),
    "all have arrived: the network": Case(
        Degrees(replicas=2),
        {0: at({DATA: (57, 56)}), 1: at({DATA: (57, 56)}, node="node-b")},
        (),
        ["All ranks are at the same place: in step 12", "Check the network"],
    ),
    "the only rank waits for no other": Case(
        Degrees(replicas=1), {0: at({})}, (), ["Rank 0 hangs in step 12. Its log of stacks shows where."]
    ),
    "a node that reports only some of its ranks": Case(
        Degrees(replicas=3), {0: at({WORLD: (3, 2)}), 2: at({WORLD: (2, 2)})}, (2,), ["of the world axis"]
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_rank_that_others_wait_for_is_named(name: str) -> None:
    case = CASES[name]
    found = diagnose(case.ranks, case.degrees)
    assert found.culprits == case.culprits, found.sentence
    for words in case.says:
        assert words in found.sentence


def test_a_large_run_is_diagnosed_quickly() -> None:
    degrees = Degrees(pipeline=4, replicas=32, tensor=8)
    late, tensor_peers = 517, range(512, 520)
    ranks = {
        rank: at({WORLD: (3, 3), DATA: (9, 8), TENSOR: (80, 79 if rank in tensor_peers else 80)})
        for rank in range(degrees.ranks)
    }
    for rank in tensor_peers:
        ranks[rank] = at({WORLD: (3, 3), DATA: (8, 8), TENSOR: (70, 69)})
    ranks[late] = at({WORLD: (3, 3), DATA: (8, 8), TENSOR: (69, 69)}, node="node-64")
    found = diagnose(ranks, degrees)
    assert found.culprits == (late,)
    assert "Rank 517 on node-64 has not arrived at all_reduce 70 of the tensor axis" in found.sentence
    assert "where ranks 512, 513, 514 and 4 more wait" in found.sentence
