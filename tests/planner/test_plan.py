"""Figures of a layout, checked by hand where possible."""

from typing import Any

import pytest

from trainwright.contracts.layout_rules import even_stages
from trainwright.contracts.run_spec import RunSpec
from trainwright.planner.memory import RankMemory, largest_share, rank_memory
from trainwright.planner.plan import Host, Slot, auto_stages, plan, stage_times
from trainwright.planner.stage_partition import DoesNotFitError, RankCapacity

SPEC: dict[str, Any] = {
    "name": "plan",
    "data": {"dataset": "ds_1", "tokenizer": {"kind": "bytes"}},
    "model": {"layers": 8, "width": 256, "heads": 8, "kv_heads": 8, "feed_forward": 1_024},
    "batch": {"sequence_tokens": 512, "micro_sequences": 2, "global_sequences": 64},
    "precision": {"kind": "fp32"},
}
BLOCK = 4 * 256**2 + 3 * 256 * 1_024 + 2 * 256
ENDS = 257 * 256 + 256


def spec_of(ranks: int = 1, **sections: Any) -> RunSpec:
    layered = {name: SPEC.get(name, {}) | section for name, section in sections.items()}
    return RunSpec.model_validate(SPEC | {"resources": {"slots_per_node": ranks}} | layered)


def memory_of(ranks: int = 1, rank: int = 0, **sections: Any) -> RankMemory:
    spec = spec_of(ranks, **sections)
    return rank_memory(spec, even_stages(8, spec.parallelism.stage_count), rank)


def test_one_rank_holds_16_bytes_per_parameter() -> None:
    memory = memory_of()
    parameters = 8 * BLOCK + ENDS
    assert (memory.weights, memory.gradients, memory.optimizer) == (
        4 * parameters,
        4 * parameters,
        8 * parameters,
    )
    assert memory.total == sum(vars(memory).values()) - memory.host


def test_the_snapshot_of_the_state_is_in_the_memory_of_a_cpu_or_of_the_host() -> None:
    parameters = 8 * BLOCK + ENDS
    on_cpu = memory_of(resources={"device": "cpu"})
    on_gpu = memory_of(resources={"device": "cuda"})
    assert (on_cpu.snapshot, on_cpu.host) == (12 * parameters, 0)
    assert (on_gpu.snapshot, on_gpu.host) == (0, 12 * parameters)
    assert on_cpu.total == on_gpu.total + 12 * parameters


@pytest.mark.parametrize("layout", [{}, {"zero_stage": 1}, {"zero_stage": 3}, {"zero_stage": 1, "shard": 2}])
def test_ranks_divide_the_snapshot_of_what_they_all_have(layout: dict[str, Any]) -> None:
    whole = 12 * (8 * BLOCK + ENDS)
    assert memory_of(4, parallelism=layout).host == pytest.approx(whole / 4, rel=0.1)


def test_only_one_node_writes_what_all_have() -> None:
    spread = {"nodes": 2, "slots_per_node": 2}
    whole = 12 * (8 * BLOCK + ENDS)
    assert memory_of(resources=spread).host == pytest.approx(whole / 2, rel=0.1)
    assert memory_of(resources=spread, parallelism={"zero_stage": 1}).host == pytest.approx(
        whole / 4, rel=0.1
    )


def test_each_zero_stage_shards_one_more_kind_of_state() -> None:
    whole = memory_of(4)
    sharing = [memory_of(4, parallelism={"zero_stage": stage}) for stage in (1, 2, 3)]
    assert all(item.optimizer < 0.3 * whole.optimizer for item in sharing)
    assert [item.weights < 0.3 * whole.weights for item in sharing] == [False, False, True]
    assert memory_of(4, parallelism={"zero_stage": 3}).gradients < 0.3 * whole.gradients
    assert memory_of(4, parallelism={"zero_stage": 1, "shard": 2}).optimizer > 0.45 * whole.optimizer


@pytest.mark.parametrize(
    ("fp8", "bytes_a_parameter"),
    [
        ({"level": "O1"}, (4, 8)),
        ({"level": "O2"}, (2, 3)),
        ({"level": "O2", "moments": "block"}, (2, 2.0625)),
    ],
)
def test_fp8_levels_hold_the_bytes_of_their_recipe(
    fp8: dict[str, Any], bytes_a_parameter: tuple[float, float]
) -> None:
    memory = memory_of(precision={"kind": "fp8", "fp8": fp8})
    parameters = 8 * BLOCK + ENDS
    assert (memory.weights / parameters, memory.optimizer / parameters) == pytest.approx(bytes_a_parameter)


def test_o3_divides_states_and_adds_an_e4m3_copy() -> None:
    whole, cut = (memory_of(4, precision={"kind": "fp8", "fp8": {"level": level}}) for level in ("O2", "O3"))
    assert cut.optimizer < 0.3 * whole.optimizer and cut.weights < 0.3 * whole.weights
    assert cut.copies == pytest.approx(8 * BLOCK + ENDS, rel=0.01)


def test_operands_of_fp8_weights_are_stored_only_with_several_micro_batches() -> None:
    def copies(**given: Any) -> int:
        return memory_of(**({"precision": {"kind": "fp8", "fp8": given.pop("fp8", {})}} | given)).copies

    assert copies() == pytest.approx(2 * 8 * BLOCK, rel=0.01)
    assert copies(fp8={"scaling": "row"}) == 0
    assert copies(batch={"micro_sequences": 8, "global_sequences": 8}) == 0


def test_tensor_ranks_hold_their_shard_and_full_gathered_inputs() -> None:
    one, two = memory_of(1), memory_of(2, parallelism={"tensor": 2})
    assert two.weights == pytest.approx(one.weights / 2, rel=0.01)
    tokens = 2 * 512
    assert (one.gathered, two.gathered) == (0, 8 * tokens * 2 * 4 * 256)
    assert two.activations + two.gathered / 2 == pytest.approx(one.activations / 2)


def test_1f1b_holds_more_activations_on_the_first_ranks_and_the_loss_on_the_last() -> None:
    ranks = [memory_of(4, rank, parallelism={"pipeline": 4}) for rank in range(4)]
    kept = [rank.activations for rank in ranks]
    stream = 2 * 512 * 256 * 4  # sent activations are held too; the last stage sends nothing
    per_batch = kept[3]
    assert kept[:3] == [(4 - rank) * (per_batch + stream) for rank in range(3)]
    assert [rank.loss > 0 for rank in ranks] == [False, False, False, True]
    assert [rank.transfers > 0 for rank in ranks] == [True] * 4


def test_recomputation_holds_block_inputs_and_one_block() -> None:
    none, selective, full = (
        memory_of(memory={"recompute": kind}).activations for kind in ("none", "selective", "full")
    )
    assert full < selective < none
    stream = 2 * 512 * 256 * 4
    assert full == 8 * stream + (none // 8 - stream)


def test_offload_moves_states_into_the_nodes_memory() -> None:
    sections: dict[str, Any] = {"precision": {"kind": "bf16"}}
    here = memory_of(4, parallelism={"engine": "deepspeed", "zero_stage": 2}, **sections)
    there = memory_of(
        4, parallelism={"engine": "deepspeed", "zero_stage": 2, "offload": "optimizer"}, **sections
    )
    assert there.optimizer == 0 and there.host > here.optimizer > 0
    assert there.total < here.total


def test_a_chunked_loss_never_holds_full_logits() -> None:
    vocabulary = {"tokenizer": {"kind": "bpe", "vocabulary": 32_000}}
    whole, chunked = (
        memory_of(data=vocabulary, memory={"loss_chunk_tokens": tokens}).loss for tokens in (4_096, 128)
    )
    # 1,024 tokens · 32,000 logits · 12 bytes, against those of 128 tokens and the head's gradient
    assert whole > 1_024 * 32_000 * 12 > 4 * chunked


def test_sharding_by_whole_tensors_leaves_at_least_the_largest_tensor() -> None:
    assert largest_share([10, 1, 1, 1], 2) == 10
    assert largest_share([3, 3, 2, 2, 2], 2) == 7
    assert largest_share([5], 4) == 5


def test_a_large_vocabulary_leaves_fewer_layers_for_the_last_stage() -> None:
    data = {"tokenizer": {"kind": "bpe", "vocabulary": 16_000}}
    spec = spec_of(4, data=data, parallelism={"pipeline": 4, "stages": "auto"})
    head = 16_000 * 256
    assert head > 3 * BLOCK
    layers = auto_stages(spec)
    assert sum(layers) == 8 and layers[-1] == 1
    assert max(sum(stage_time) for stage_time in stage_times(spec, layers)) <= max(
        sum(stage_time) for stage_time in stage_times(spec, (2, 2, 2, 2))
    )


def test_auto_gives_slow_ranks_fewer_layers_and_reports_what_does_not_fit() -> None:
    spec = spec_of(2, parallelism={"pipeline": 2, "stages": "auto"})
    assert auto_stages(spec) == (4, 4)
    assert auto_stages(spec, [RankCapacity(1.0), RankCapacity(3.0)]) == (2, 6)
    room = rank_memory(spec, (3, 5), 0).total
    assert auto_stages(spec, [RankCapacity(1.0, room), RankCapacity(1.0)]) == (3, 5)
    with pytest.raises(DoesNotFitError, match=r"stage 0 .* pipeline rank 0, which has 1,000"):
        auto_stages(spec, [RankCapacity(1.0, 1_000), RankCapacity()])


@pytest.mark.parametrize("schedule", ["1f1b", "interleaved", "interleaved_zero_bubble", "zbv"])
def test_a_plan_contains_the_position_of_every_rank(schedule: str) -> None:
    spec = spec_of(8, parallelism={"pipeline": 4, "tensor": 2, "schedule": schedule})
    found = plan(spec)
    assert [(item.rank, item.pipeline, item.tensor) for item in found.ranks[:3]] == [
        (0, 0, 0),
        (1, 0, 1),
        (2, 1, 0),
    ]
    assert sum(stage.layers for stage in found.stages) == 8
    assert [stage.embedding for stage in found.stages].index(True) == 0 and found.stages[-1].loss
    assert len(found.memory) == len(found.timeline) == 4
    assert {cell.micro_batch for own in found.timeline for cell in own} == set(range(32))
    assert 0 < found.bubble_fraction < 0.15


def test_the_bubble_counts_all_micro_batches_even_if_few_are_shown() -> None:
    batch = {"micro_sequences": 1, "global_sequences": 8_192}
    found = plan(spec_of(4, batch=batch, parallelism={"pipeline": 4}))
    assert sum(map(len, found.timeline)) <= 4_000
    last = max(sum(stage_time) for stage_time in stage_times(spec_of(), (2, 2, 2, 2)))
    assert last > 0 and found.bubble_fraction < 0.05
    one = plan(spec_of(4, batch=batch | {"global_sequences": 256}, parallelism={"pipeline": 4}))
    assert found.bubble_fraction < one.bubble_fraction


def test_a_tied_embedding_counts_once_on_a_rank_with_both_ends() -> None:
    """The weight is counted once, not twice: with zbv, rank 0 has both the first and the last stage."""
    parallelism = {"pipeline": 2, "schedule": "zbv", "stages": "auto"}
    sections: dict[str, Any] = {
        "model": {"tied_embeddings": True},
        "data": {"tokenizer": {"kind": "bpe", "vocabulary": 50_000}},
        "parallelism": parallelism,
    }
    spec = spec_of(2, **sections)
    least = rank_memory(spec, (1, 5, 1, 1), 0).total
    assert 0.1 * least < 16 * 50_000 * 256
    found = auto_stages(spec, [RankCapacity(1.0, int(1.1 * least)), RankCapacity(1.0)])
    assert rank_memory(spec, found, 0).total <= 1.1 * least
    with pytest.raises(DoesNotFitError):
        auto_stages(spec, [RankCapacity(1.0, int(0.9 * least)), RankCapacity(1.0)])


def test_a_rank_larger_than_its_slot_causes_a_warning() -> None:
    spec = spec_of(4, parallelism={"pipeline": 4})
    sizes = [item.total + item.host for item in plan(spec).memory]
    assert sizes[0] == max(sizes)
    assert plan(spec, slot=Slot("node-1", sizes[0])).warnings == []
    [one] = plan(spec, slot=Slot("node-1", sizes[0] - 1)).warnings
    assert one.startswith("Pipeline rank 0 needs") and "on node-1" in one
    [every] = plan(spec, slot=Slot("node-1", 1)).warnings
    assert every.startswith("Each rank")
    assert plan(spec).slot_bytes is None and plan(spec).warnings == []


def test_offload_of_more_than_the_largest_node_has_causes_a_warning() -> None:
    parallelism = {"engine": "deepspeed", "zero_stage": 2, "offload": "optimizer"}
    spec = spec_of(2, parallelism=parallelism, precision={"kind": "bf16"})
    found = plan(spec, cuda=True)
    assert found.host_bytes == 2 * found.memory[0].host > 0 and found.warnings == []
    enough, less = Host("node-1", found.host_bytes), Host("node-1", found.host_bytes - 1)
    assert plan(spec, cuda=True, host=enough).warnings == []
    [warning] = plan(spec, cuda=True, host=less).warnings
    assert "the largest node for this run, node-1, has" in warning and "parallelism.offload" in warning
    assert plan(spec, host=less).warnings == [], "the ranks of a CPU have their slots' shares"
    plain = spec_of(2)
    snapshots = plan(plain, cuda=True).host_bytes
    assert plan(plain, cuda=True, host=Host("node-1", snapshots)).warnings == []
    [warning] = plan(plain, cuda=True, host=Host("node-1", snapshots - 1)).warnings
    assert "Checkpoints and offload take" in warning


def test_offload_on_a_cpu_uses_the_same_memory() -> None:
    parallelism = {"engine": "deepspeed", "zero_stage": 2, "offload": "optimizer"}
    spec = spec_of(2, parallelism=parallelism, precision={"kind": "bf16"})
    [memory] = plan(spec).memory
    slot = Slot("node-1", memory.total + memory.host // 2)
    assert plan(spec, slot=slot).warnings and not plan(spec, cuda=True, slot=slot).warnings
