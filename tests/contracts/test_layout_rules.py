"""An invalid layout is refused at its field with the nearest valid choice, and each rule can be violated."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from pydantic import ValidationError

from trainwright.contracts.base import problems
from trainwright.contracts.layout_rules import (
    REFUSED_COMBINATIONS,
    configured_stages,
    even_stages,
    of_optimizers,
)
from trainwright.contracts.optimizer_spec import UPDATE_RULES, UpdateRule
from trainwright.contracts.parallelism_spec import Degrees
from trainwright.contracts.run_spec import RunSpec

SPEC: dict[str, Any] = {
    "name": "layouts",
    "data": {"dataset": "ds_1"},
    "model": {"layers": 8, "width": 256, "heads": 8, "kv_heads": 4, "feed_forward": 512},
    "batch": {"sequence_tokens": 256, "micro_sequences": 2, "global_sequences": 64},
    "resources": {"slots_per_node": 8},
}
FP8 = {"kind": "fp8"}


def spec(**sections: Any) -> dict[str, Any]:
    """``SPEC`` with some sections extended."""
    return SPEC | {name: SPEC.get(name, {}) | section for name, section in sections.items()}


def refusal(**sections: Any) -> tuple[str, str]:
    """Field and message of a spec's only problem."""
    with pytest.raises(ValidationError) as caught:
        RunSpec.model_validate(spec(**sections))
    (problem,) = problems(caught.value, RunSpec)
    return problem.field, problem.message


ELASTIC = {"nodes": 4, "slots_per_node": 2}


@pytest.mark.parametrize(
    ("sections", "field", "words"),
    [
        ({"resources": {"min_nodes": 5}}, "resources.min_nodes", "use 4 at most, or leave it empty"),
        (
            {"resources": {"min_nodes": 3}},
            "resources.min_nodes",
            "with that many nodes, batch.global_sequences 64 must be a multiple of batch.micro_sequences × data degree = "
            "2 × 6 = 12: the nearest is 60. The nearest number of nodes that works is 2",
        ),
        (
            {"resources": {"min_nodes": 1}, "parallelism": {"pipeline": 4}},
            "resources.min_nodes",
            "The nearest number of nodes that works is 2",
        ),
        (
            {"resources": {"min_nodes": 1}, "parallelism": {"zero_stage": 1, "shard": 4}},
            "resources.min_nodes",
            "must divide the data degree 2",
        ),
        (
            {"resources": {"min_nodes": 2}, "parallelism": {"data": 8}},
            "parallelism.data",
            "leave resources.min_nodes empty",
        ),
    ],
)
def test_a_least_number_of_nodes_that_cannot_work_is_refused(
    sections: dict[str, Any], field: str, words: str
) -> None:
    resources = ELASTIC | sections["resources"]
    found = refusal(**sections | {"resources": resources})
    assert found[0] == field and words in found[1], found


def test_an_elastic_run_fits_the_numbers_of_nodes_on_which_its_layout_works() -> None:
    found = RunSpec.model_validate(spec(resources=ELASTIC | {"min_nodes": 1}))
    assert [nodes for nodes in range(6) if found.fits_nodes(nodes)] == [1, 2, 4]
    assert found.on_nodes(2).degrees.data == 4
    assert found.on_nodes(2).accumulation_steps == 8
    fixed = RunSpec.model_validate(spec(resources=ELASTIC))
    assert [nodes for nodes in range(6) if fixed.fits_nodes(nodes)] == [4]


@pytest.mark.parametrize(
    ("sections", "field", "words"),
    [
        ({"parallelism": {"tensor": 3}}, "parallelism.tensor", "span nodes"),
        (
            {"parallelism": {"tensor": 3, "tensor_across_nodes": True}},
            "parallelism.tensor",
            "nearest is tensor 2",
        ),
        ({"parallelism": {"pipeline": 3}}, "parallelism.tensor", "nearest is pipeline 2 with tensor 1"),
        ({"parallelism": {"tensor": 2, "data": 8}}, "parallelism.data", "use 4"),
        ({"parallelism": {"zero_stage": 2, "shard": 3}}, "parallelism.shard", "the nearest is 2"),
        ({"parallelism": {"shard": 2}}, "parallelism.shard", "raise zero_stage"),
        (
            {"parallelism": {"tensor": 8}},
            "parallelism.tensor",
            "does not divide model.kv_heads 4: the nearest that does is 4",
        ),
        ({"parallelism": {"tensor_chunks": 2}}, "parallelism.tensor_chunks", "raise tensor, or use 1"),
        (
            {"parallelism": {"tensor": 4, "tensor_chunks": 7}},
            "parallelism.tensor_chunks",
            "256 ÷ tensor 4 = 64: the nearest that does is 8",
        ),
        (
            {"parallelism": {"tensor": 2, "tensor_chunks": 2, "engine": "deepspeed"}},
            "parallelism.engine",
            "use tensor 1",
        ),
        ({"parallelism": {"pipeline": 2, "stages": [3, 3, 2]}}, "parallelism.stages", "has 3 stages"),
        ({"parallelism": {"pipeline": 2, "stages": [3, 4]}}, "parallelism.stages", "adds up to 7"),
        ({"parallelism": {"pipeline": 2, "stages": [8, 0]}}, "parallelism.stages", "at least 1"),
        (
            {"parallelism": {"pipeline": 8, "schedule": "zbv"}},
            "parallelism.pipeline",
            "use pipeline 4 at most",
        ),
        (
            {"parallelism": {"pipeline": 2, "stages_per_rank": 2}},
            "parallelism.stages_per_rank",
            "leave it empty",
        ),
        ({"parallelism": {"schedule": "zbv"}}, "parallelism.schedule", "raise pipeline"),
        ({"batch": {"global_sequences": 40}}, "batch.global_sequences", "the nearest is 32"),
        (
            {"parallelism": {"pipeline": 8}, "batch": {"global_sequences": 8}},
            "batch.global_sequences",
            "use at least 16",
        ),
        (
            {
                "parallelism": {"pipeline": 2, "schedule": "interleaved"},
                "batch": {"micro_sequences": 1, "global_sequences": 20},
            },
            "batch.global_sequences",
            "the nearest is",
        ),
        (
            {"memory": {"recompute": "full", "recompute_layers": "2-9"}},
            "memory.recompute_layers",
            "use 2-7",
        ),
        ({"memory": {"recompute_layers": "0-3"}}, "memory.recompute_layers", "set recompute to full"),
        (
            {"memory": {"recompute": "full", "recompute_layers": "3-1"}},
            "memory.recompute_layers",
            "first-last",
        ),
        (
            {"precision": FP8, "model": {"feed_forward": 1_040}, "parallelism": {"tensor": 2}},
            "model.feed_forward",
            "the next is 1056",
        ),
        ({"parallelism": {"context": 2}}, "parallelism.context", "not supported yet"),
    ],
)
def test_a_layout_that_does_not_fit_names_field_and_nearest_choice(
    sections: dict[str, Any], field: str, words: str
) -> None:
    found_field, message = refusal(**sections)
    assert found_field == field
    assert words in message


BROKEN: dict[str, dict[str, Any]] = {
    "parallelism.data with resources.min_nodes": {
        "parallelism": {"data": 16},
        "resources": {"nodes": 2, "slots_per_node": 8, "min_nodes": 1},
    },
    "engine deepspeed with pipeline > 1": {"parallelism": {"engine": "deepspeed", "pipeline": 2}},
    "engine deepspeed with tensor > 1": {"parallelism": {"engine": "deepspeed", "tensor": 2}},
    "engine deepspeed with precision fp8": {"parallelism": {"engine": "deepspeed"}, "precision": FP8},
    "engine deepspeed at zero_stage 3 with precision.compile on": {
        "parallelism": {"engine": "deepspeed", "zero_stage": 3},
        "precision": {"kind": "bf16", "compile": "on"},
    },
    "engine deepspeed with shard below the data degree": {
        "parallelism": {"engine": "deepspeed", "zero_stage": 1, "shard": 2}
    },
    "offload with engine native": {"parallelism": {"offload": "optimizer", "zero_stage": 2}},
    "offload of parameters below zero_stage 3": {
        "parallelism": {"engine": "deepspeed", "offload": "parameters", "zero_stage": 2}
    },
    "offload of optimizer states at zero_stage 0": {
        "parallelism": {"engine": "deepspeed", "offload": "optimizer"}
    },
    "FP8 O1 or O2 with zero_stage > 0": {"parallelism": {"zero_stage": 1}, "precision": FP8},
    "FP8 O3 with zero_stage": {
        "parallelism": {"zero_stage": 1},
        "precision": {"kind": "fp8", "fp8": {"level": "O3"}},
    },
    "zero_stage 3 with pipeline > 1": {"parallelism": {"pipeline": 2, "zero_stage": 3}},
    "zero-bubble schedules with precision.compile on": {
        "parallelism": {"pipeline": 2, "schedule": "zbv"},
        "precision": {"compile": "on"},
    },
    "zero-bubble schedules with recomputation": {
        "parallelism": {"pipeline": 2, "schedule": "interleaved_zero_bubble"},
        "memory": {"recompute": "full"},
    },
    "optimizer in backward with a pipeline": {
        "parallelism": {"pipeline": 2},
        "precision": {"kind": "fp8", "fp8": {"optimizer_in_backward": True}},
    },
    "FP8 scaling by row or block with tensor > 1": {
        "parallelism": {"tensor": 2},
        "precision": {"kind": "fp8", "fp8": {"scaling": "row"}},
    },
    "tensor_chunks > 1 with precision.compile on": {
        "parallelism": {"tensor": 2, "tensor_chunks": 2},
        "precision": {"compile": "on"},
    },
    "a tensor group across nodes": {"parallelism": {"tensor": 3}},
    "optimizer.kind lamb with precision fp8": {"optimizer": {"kind": "lamb"}, "precision": FP8},
    "optimizer.kind muon with precision fp8": {"optimizer": {"kind": "muon"}, "precision": FP8},
    "optimizer.kind muon with engine deepspeed": {
        "optimizer": {"kind": "muon"},
        "parallelism": {"engine": "deepspeed"},
    },
    "optimizer.kind lamb with engine deepspeed": {
        "optimizer": {"kind": "lamb"},
        "parallelism": {"engine": "deepspeed"},
    },
    "model.attention localized_filtering with an odd width ÷ heads": {
        "model": {"attention": "localized_filtering", "width": 12, "heads": 4, "head_size": 4}
    },
    "model.attention localized_filtering with model.block parallel": {
        "model": {"attention": "localized_filtering", "block": "parallel"}
    },
    "model.attention localized_filtering with tensor_chunks > 1": {
        "model": {"attention": "localized_filtering"},
        "parallelism": {"tensor": 2, "tensor_chunks": 2},
    },
}
"""For each rule, a spec that violates it but none of the rules before it."""


@pytest.mark.parametrize("rule", REFUSED_COMBINATIONS, ids=lambda rule: rule.choice)
def test_every_excluded_combination_is_refused_with_its_reason(rule: Any) -> None:
    assert rule.choice in BROKEN, "a rule without a spec that violates it"
    field, message = refusal(**BROKEN[rule.choice])
    assert field == rule.field
    assert rule.reason in message


@pytest.mark.parametrize("other", [{"precision": FP8}, {"parallelism": {"engine": "deepspeed"}}])
def test_an_optimizer_is_refused_where_it_does_not_declare_support(other: dict[str, Any]) -> None:
    run = RunSpec.model_validate(spec(**other))
    little, adamw = UpdateRule(("exp_avg",)), UPDATE_RULES["adamw"]
    kind = run.optimizer.kind
    sections = run.sections()
    broken = [rule for rule in of_optimizers({kind: little, "another": little}) if rule.broken(sections)]
    assert [(rule.field, rule.value(sections)) for rule in broken] == [("optimizer.kind", kind)]
    assert list(of_optimizers({kind: adamw})) == []
    plain = RunSpec.model_validate(spec()).sections()
    assert not any(rule.broken(plain) for rule in of_optimizers({kind: little}))


def test_ranks_and_positions_correspond_one_to_one() -> None:
    degrees = Degrees(pipeline=2, replicas=3, shard=2, tensor=4)
    places = [degrees.coordinates(rank) for rank in range(degrees.ranks)]
    assert [degrees.rank_at(place) for place in places] == list(range(48))
    assert {(p.pipeline, p.replica, p.shard, p.tensor) for p in places} == set(
        product(range(2), range(3), range(2), range(4))
    )
    assert [place.tensor for place in places[:4]] == [0, 1, 2, 3], "ranks of a tensor group are neighbors"


@pytest.mark.parametrize(
    ("parallelism", "degrees"),
    [
        ({}, Degrees(1, 8, 1, 1)),
        ({"tensor": 2}, Degrees(1, 4, 1, 2)),
        ({"tensor": 2, "pipeline": 2, "zero_stage": 1}, Degrees(2, 1, 2, 2)),
        ({"zero_stage": 2, "shard": 4}, Degrees(1, 2, 4, 1)),
    ],
)
def test_degrees_follow_from_the_ranks(parallelism: dict[str, Any], degrees: Degrees) -> None:
    run = RunSpec.model_validate(spec(parallelism=parallelism))
    assert run.degrees == degrees
    assert run.accumulation_steps == 64 // (2 * degrees.data)


def test_even_stages_give_the_last_ones_fewer_layers() -> None:
    assert even_stages(8, 3) == (3, 3, 2)
    run = RunSpec.model_validate(spec(parallelism={"pipeline": 4, "stages": [1, 3, 2, 2]}))
    assert configured_stages(run.model, run.parallelism) == (1, 3, 2, 2)
    auto = RunSpec.model_validate(spec(parallelism={"pipeline": 4, "stages": "auto"}))
    assert configured_stages(auto.model, auto.parallelism) is None
