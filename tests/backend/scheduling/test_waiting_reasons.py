"""What a run waits for, on an inventory of H100, A100 of 40 GB, L40S and CPU nodes."""

import itertools
from collections import Counter
from typing import Any

import pytest

from tests.backend.scripted_agent import inventory
from trainwright.contracts.api.limits import TeamLimits
from trainwright.contracts.run_spec import RunSpec
from trainwright.sizes import format_bytes
from trainwright_backend.core.db import now
from trainwright_backend.nodes.tables import Node
from trainwright_backend.runs.limit_usage import RunUse, hours_used_up
from trainwright_backend.runs.tables import Run
from trainwright_backend.scheduling.node_capacity import NodeCapacity
from trainwright_backend.scheduling.node_choice import choose_nodes
from trainwright_backend.scheduling.node_pool import NodePool
from trainwright_backend.scheduling.requirements import Needs, needs_of
from trainwright_backend.scheduling.waiting_reasons import covered_by_share, in_line, waiting_class
from trainwright_backend.scheduling.waiting_reasons import waits_for as waits_for_match
from trainwright_backend.teams.slot_quota import SlotBudget, waits_for_quota

MIB = 2**20
CARDS = {
    "h100": ("NVIDIA H100 80GB HBM3", 81_559 * MIB, "9.0"),
    "a100": ("NVIDIA A100-PCIE-40GB", 40_960 * MIB, "8.0"),
    "l40s": ("NVIDIA L40S", 46_068 * MIB, "8.9"),
}
CUDA = {"device": "cuda", "slots_per_node": 1}
TWO = {"device": "cuda", "slots_per_node": 1, "nodes": 2}
LARGE = {"layers": 48, "width": 4096, "feed_forward": 16384, "heads": 32, "kv_heads": 32}
SMALL = {"layers": 2, "width": 128, "feed_forward": 256, "heads": 4, "kv_heads": 4}


def node(name: str, *, free: int, second: str = "", **state: Any) -> NodeCapacity:
    """A node whose hardware follows from the prefix of its name. ``second``: the kind of its second GPU, if it differs."""
    card = CARDS.get(name.split("-", 1)[0])
    reported = inventory(cpu_slots=2) | {"peer_address": f"10.0.0.{len(name)}"}
    if card is not None:
        cards = [card, CARDS.get(second, card)]
        reported["gpus"] = [
            {"index": n, "name": model, "memory_bytes": memory, "capability": capability}
            for n, (model, memory, capability) in enumerate(cards)
        ]
    row = Node(
        name=name, inventory=reported, allowed_slots=None, busy_slots={}, draining=False, quarantined=None
    )
    for field, value in state.items():
        setattr(row, field, value)
    slots = list(range(free))
    return NodeCapacity.of(row, {"cuda": slots if card else [], "cpu": [] if card else slots})


def needs(resources: dict[str, Any], model: dict[str, Any] = SMALL, **sections: Any) -> Needs:
    spec = RunSpec.model_validate(
        {"name": "pilot", "data": {"dataset": "ds_1"}, "resources": resources, "model": model} | sections
    )
    nodes, slots = spec.resources.nodes, spec.resources.ranks
    return needs_of(
        Run(spec=spec.model_dump(mode="json"), device=spec.resources.device.value, nodes=nodes, slots=slots)
    )


def waits_for(wanted: Needs, available: list[NodeCapacity], unavailable: list[NodeCapacity]) -> str:
    return waits_for_match(NodePool(available, unavailable).match(wanted), unavailable)


BUSY = [node("h100-a", free=0), node("a100-a", free=0), node("l40s-a", free=1), node("cpu-a", free=0)]
WITHOUT_H100 = [node("a100-a", free=2), node("l40s-a", free=2), node("cpu-a", free=2)]
UNLIKE = [node("h100-a", free=2), node("a100-a", free=2), node("l40s-a", free=2)]
FP8 = {"precision": {"kind": "fp8"}}
BATCH = {"global_sequences": 4, "micro_sequences": 1, "sequence_tokens": 64}
LARGE_NEEDS = needs(CUDA, LARGE, precision={"kind": "bf16"})
CASES: dict[str, tuple[Needs, list[NodeCapacity], list[NodeCapacity], str]] = {
    "slots": (needs({"device": "cuda", "slots_per_node": 2}), BUSY, [], "needs 2 slots, 1 free on 3 nodes"),
    "no free slot": (needs(CUDA), BUSY[:2], [], "needs 1 slot, 0 free on 2 nodes"),
    "cpu slots": (
        needs({"device": "cpu", "slots_per_node": 2}), BUSY, [], "needs 2 slots, 0 free on 4 nodes",
    ),
    "fp8": (
        needs(CUDA, **FP8), [node("a100-a", free=2), node("cpu-a", free=2)], [],
        "needs 1 slot on GPUs of compute capability 8.9 or newer, which no online node has",
    ),
    "fp8 counts only cards that have it": (
        needs({"device": "cuda", "slots_per_node": 2}, **FP8), BUSY, [], "needs 2 slots, 1 free on 2 nodes",
    ),
    "model": (
        needs(CUDA | {"gpu_model": "h100"}), WITHOUT_H100, [],
        "needs 1 slot on h100 GPUs, which no online node has",
    ),
    "memory of a card": (
        needs(CUDA | {"gpu_memory_gib": 48}), WITHOUT_H100, [],
        "needs 1 slot on GPUs of at least 48 GiB, which no online node has",
    ),
    "all three": (
        needs(CUDA | {"gpu_model": "H100", "gpu_memory_gib": 79, "gpu_capability": "9.0"}), WITHOUT_H100, [],
        "needs 1 slot on H100 GPUs of at least 79 GiB and compute capability 9.0, which no online node has",
    ),
    "memory of the run": (
        LARGE_NEEDS, WITHOUT_H100, [],
        f"needs a node with {format_bytes(LARGE_NEEDS.memory.rank_bytes)} for a rank; the largest online node, l40s-a, has 45 GiB",
    ),
    "quarantine": (
        needs(CUDA | {"gpu_model": "H100"}), WITHOUT_H100, [node("h100-a", free=2, quarantined=now())],
        "needs 1 slot; h100-a is in quarantine until a self-test passes",
    ),
    "drained": (
        needs(CUDA | {"gpu_capability": "9.0"}), WITHOUT_H100, [node("h100-a", free=2, draining=True)],
        "needs 1 slot; h100-a is drained",
    ),
    "two nodes": (
        needs(TWO | {"gpu_model": "H100"}, batch=BATCH),
        [node("h100-a", free=2), *WITHOUT_H100], [],
        "needs 2 nodes with 1 slot each; 1 node of that size is online",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_sentence_names_what_is_missing(case: str) -> None:
    wanted, available, unavailable, sentence = CASES[case]
    assert waits_for(wanted, available, unavailable) == sentence


def test_each_sentence_belongs_to_the_class_of_what_is_missing() -> None:
    occupied = {"slots", "no free slot", "cpu slots", "fp8 counts only cards that have it"}
    found = {case: waiting_class(waits_for(*CASES[case][:3])) for case in CASES}
    assert found == {case: "slots" if case in occupied else "no_node" for case in CASES}
    two_busy = [node("h100-a", free=0), node("h100-bb", free=2)]
    assert waiting_class(waits_for(needs(TWO), two_busy, [])) == "slots"
    assert waiting_class(waits_for(needs(CUDA), [], [])) == "no_node"
    endings = (
        in_line(2, "needs 1 slot"),
        covered_by_share(True, has_room=False),
        covered_by_share(True, has_room=True),
    )
    for ending in endings:
        assert {case: waiting_class(waits_for(*CASES[case][:3]) + ending) for case in CASES} == found
        assert waiting_class(waits_for(needs(CUDA), [], []) + ending) == "no_node"


USE = RunUse(hours={"cuda": 5.0, "cpu": 0.0})
NAMES = ("Ada", "needs 1 slot", "needs 1 slot, 1 free on 2 nodes", "preparing its data")
"""Names of people and runs can be anything, even another class's words."""

OTHERS = {
    "turn": [""],
    "data": ["preparing its data", "preparing, 3 of 12 shards"],
    "limit": [
        *(waits_for_quota("cuda", 2, SlotBudget(limit=4, used=3), [name]) for name in NAMES),
        waits_for_quota("cpu", 9, SlotBudget(limit=4, used=0), []),
        *(str(hours_used_up(TeamLimits(gpu_hours_per_month=5), USE, "cuda", name)) for name in NAMES),
    ],
}
"""Sentences of other modules, by class."""


@pytest.mark.parametrize("expected", OTHERS)
def test_sentences_about_data_and_limits_have_their_classes(expected: str) -> None:
    assert {text: waiting_class(text) for text in OTHERS[expected]} == dict.fromkeys(
        OTHERS[expected], expected
    )


@pytest.mark.parametrize(
    ("asked", "able"),
    [
        ({"gpu_model": "h100"}, ["h100"]),
        ({"gpu_model": "NVIDIA"}, ["h100", "a100", "l40s"]),
        ({"gpu_memory_gib": 40}, ["h100", "a100", "l40s"]),
        ({"gpu_memory_gib": 44}, ["h100", "l40s"]),
        ({"gpu_capability": "8.9"}, ["h100", "l40s"]),
        ({"gpu_capability": "8.0", "gpu_model": "a100"}, ["a100"]),
        ({"gpu_capability": "10.0"}, []),
    ],
)
def test_a_run_is_placed_only_on_gpus_that_it_requests(asked: dict[str, Any], able: list[str]) -> None:
    found = [kind for kind in CARDS if node(kind, free=2).can_run_now(needs(CUDA | asked))]
    assert found == able


@pytest.mark.parametrize("resources", [CUDA, TWO])
def test_an_fp8_run_is_never_placed_on_an_a100(resources: dict[str, Any]) -> None:
    """All inventories of up to three of these nodes, with each number of free slots."""
    wanted, least = needs(resources, **FP8, batch=BATCH), resources.get("nodes", 1)
    kinds = [("h100", ""), ("l40s", ""), ("a100", ""), ("h100", "a100"), ("cpu", "")]
    states = list(itertools.product(kinds, (0, 1, 2)))
    for inventory_of_three in itertools.combinations_with_replacement(states, 3):
        nodes = [
            node(f"{kind}-{'x' * number}{second}", free=free, second=second)
            for number, ((kind, second), free) in enumerate(inventory_of_three)
        ]
        chosen = choose_nodes(NodePool(nodes, []).match(wanted))
        able = Counter(
            each.name[:4]
            for each in nodes
            if each.name[:4] in ("h100", "l40s") and "a100" not in each.name and each.free["cuda"]
        )
        assert len(chosen) == (least if max(able.values(), default=0) >= least else 0), inventory_of_three
        assert all(able[each.name[:4]] >= least and "a100" not in each.name for each in chosen)


def test_data_ranks_on_several_nodes_get_equal_gpus() -> None:
    """Otherwise those with slower GPUs would make the others wait in each step."""
    wanted = needs(TWO, batch=BATCH)
    assert choose_nodes(NodePool(UNLIKE, []).match(wanted)) == []
    assert waits_for(wanted, UNLIKE, []) == (
        "needs 2 nodes with 1 slot each; at most 1 node of that size with the same GPUs is online"
    )
    equal = [*UNLIKE, node("a100-bb", free=1)]
    chosen = choose_nodes(NodePool(equal, []).match(wanted))
    assert [each.name for each in chosen] == ["a100-a", "a100-bb"]


@pytest.mark.parametrize(
    ("resources", "parallelism"),
    [(TWO, {"pipeline": 2, "stages": "auto"}), (TWO | {"slots_per_node": 2}, {"pipeline": 2})],
)
def test_stages_of_a_pipeline_may_be_on_unlike_nodes(
    resources: dict[str, Any], parallelism: dict[str, Any]
) -> None:
    wanted = needs(resources, batch=BATCH, parallelism=parallelism)
    assert len(choose_nodes(NodePool(UNLIKE, []).match(wanted))) == 2


def test_a_node_with_one_other_gpu_does_not_qualify() -> None:
    mixed = node("h100-a", free=2, second="a100")
    assert not mixed.can_run_now(needs(CUDA | {"gpu_model": "H100"}))
    assert mixed.can_run_now(needs(CUDA))
