"""ZeRO and FSDP: what each data rank stores, and that nothing else changes."""

import gc
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from tests.selection import partly_slow
from tests.trainer.jobs import build_here, write_job
from tests.trainer.ranks import on_mesh
from tests.trainer.zero_trainings import (
    BASE,
    BUCKET_BYTES,
    CASES,
    GRADIENTS,
    Learned,
    assembled,
    complaints,
    farthest,
    job_writer,
    one_step,
    run,
    start,
)
from trainwright.contracts.parallelism_spec import Degrees
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.parallel.data import gradient_buckets


@pytest.fixture(scope="module")
def job(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    return job_writer(data, tmp_path_factory)


@pytest.fixture(scope="module")
def stage_0(job: Callable[..., Path]) -> Callable[..., list[Learned]]:
    """What ranks without sharding learn, computed once for all cases that compare with it."""

    @cache
    def of(ranks: int, precision: str = "fp32", tied: bool = True, rounds: bool = True) -> list[Learned]:
        batch = BASE["batch"] | ({} if rounds else {"micro_sequences": 8 // ranks})
        clipped = {} if rounds else {"clip_norm": None}
        return run(
            job(
                ranks,
                batch=batch,
                optimizer=clipped,
                precision={"kind": precision},
                model={"tied_embeddings": tied},
            )
        )

    return of


IN_MAKE_TEST = (
    "stage 1 over 2",
    "stage 2, 2 replicas of 2",
)


@pytest.mark.parametrize("case", partly_slow(CASES, IN_MAKE_TEST))
def test_sharded_ranks_learn_what_one_process_does(
    case: str, job: Callable[..., Path], stage_0: Callable[..., list[Learned]]
) -> None:
    ranks, parallelism = CASES[case]
    (wanted,) = stage_0(1)
    results = run(job(ranks, parallelism=parallelism))
    initial, expected = assembled([result.initial for result in results]), assembled([wanted.initial])
    assert all(torch.equal(initial[name], expected[name]) for name in expected)
    assert wanted.norms[0] > 0.5, "gradients must be clipped"
    assert not complaints(results, wanted)


STAGE_1 = ["stage 1 over 2", "stage 1 over 4", "stage 1, 2 replicas of 2"]


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize(
    ("case", "precision"),
    [(case, kind) for case in STAGE_1 for kind in ("fp32", "bf16")],
)
def test_sharding_moments_changes_no_bit(
    case: str, precision: str, job: Callable[..., Path], stage_0: Callable[..., list[Learned]]
) -> None:
    """In bf16 runs owners send the casts of their weights, and validation reads them too."""
    ranks, parallelism = CASES[case]
    results = run(job(ranks, parallelism=parallelism, precision={"kind": precision}))
    wanted = stage_0(ranks, precision)
    assert [(result.losses, result.norms, result.validation) for result in results] == [
        (item.losses, item.norms, item.validation) for item in wanted
    ]
    last, expected = assembled([result.last for result in results]), assembled([item.last for item in wanted])
    assert all(torch.equal(last[name], expected[name]) for name in expected)


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_compiled_blocks_wait_for_their_weights_too(recompute: str, job: Callable[..., Path]) -> None:
    """The hooks that wait stay outside the graph."""
    sections = {"precision": {"kind": "bf16", "compile": "on"}, "memory": {"recompute": recompute}}
    results, wanted = run(job(2, parallelism={"zero_stage": 1}, **sections)), run(job(2, **sections))
    assert (results[0].losses, results[0].validation) == (wanted[0].losses, wanted[0].validation)
    last, expected = assembled([result.last for result in results]), assembled([item.last for item in wanted])
    assert all(torch.equal(last[name], expected[name]) for name in expected)


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize(
    ("stage", "tied"),
    [(2, True), (3, True), (2, False), (3, False)],
)
def test_two_ranks_with_one_micro_batch_each_equal_stage_0_bit_for_bit(
    stage: int, tied: bool, job: Callable[..., Path], stage_0: Callable[..., list[Learned]]
) -> None:
    """This does not apply to the norm, a sum over all gradients: nothing is clipped here."""
    results = run(
        job(
            2,
            parallelism={"zero_stage": stage},
            batch={"micro_sequences": 4},
            optimizer={"clip_norm": None},
            model={"tied_embeddings": tied},
        )
    )
    wanted = stage_0(2, tied=tied, rounds=False)
    assert results[0].losses == wanted[0].losses
    last, expected = assembled([result.last for result in results]), assembled([item.last for item in wanted])
    assert all(torch.equal(last[name], expected[name]) for name in expected)


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("tied", [True, False])
def test_sharded_weights_round_to_bfloat16_where_full_ones_do(
    tied: bool, job: Callable[..., Path], stage_0: Callable[..., list[Learned]]
) -> None:
    """Embedding, head and norms are not rounded.
    Gradients of several chunks and micro batches are summed in float32."""
    memory = {"loss_chunk_tokens": 128}
    sections: dict[str, Any] = {
        "batch": {"micro_sequences": 2, "sequence_tokens": 128},
        "memory": memory,
        "precision": {"kind": "bf16"},
        "model": {"tied_embeddings": tied},
    }
    results, wanted = run(job(2, parallelism={"zero_stage": 3}, **sections)), run(job(2, **sections))
    assert results[0].losses[0] == wanted[0].losses[0]
    first, expected = (
        assembled([result.first for result in results]),
        assembled([item.first for item in wanted]),
    )
    # Two ranks with two micro batches each sum four numbers in another order, and the norm of all is rounded
    # differently. A gradient that is rounded to bfloat16 in between is off by about 2⁻¹⁰.
    assert farthest(first, expected, GRADIENTS) <= 16 * 2.0**-24


def _bytes_held(mesh: Mesh, job_file: Path) -> int:
    """Bytes of all tensors that exist between two steps,
    except rotary tables and tensors that are not matrices."""
    gradient_buckets.BUCKET_BYTES = BUCKET_BYTES
    training = start(mesh, job_file)
    one_step(training, 1)
    gc.collect()
    storages: dict[int, int] = {}
    for held in gc.get_objects():
        if isinstance(held, Tensor) and type(held) in (Tensor, torch.nn.Parameter):
            for tensor in (held, held.grad if held.is_leaf else None):
                if tensor is not None and tensor.ndim and tensor.device.type == "cpu":
                    storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
    return sum(size for size in storages.values() if size >= 4_096)


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("ranks", [2, 4])
def test_sharded_state_takes_its_fraction_of_the_memory(ranks: int, job: Callable[..., Path]) -> None:
    model = {"layers": 4, "width": 64, "kv_heads": 4, "feed_forward": 192, "tied_embeddings": False}
    elements = 4 * (4 * 64 * 64 + 3 * 64 * 192) + 2 * 256 * 64
    whole = 4 * elements
    held = {
        stage: on_mesh(
            Degrees(shard=ranks) if stage else Degrees(replicas=ranks),
            _bytes_held,
            job(ranks, model=model, parallelism={"zero_stage": stage}),
        )
        for stage in (0, 1, 2, 3)
    }
    # Weights, gradients and two moments. Owners have at most one tensor, of at most 64 KiB, more or less than
    # others. The rotary tables and the tokens of a batch are less than 64 KiB too.
    copies = {0: 4.0, 1: 2 + 2 / ranks, 2: 1 + 3 / ranks, 3: 4 / ranks}
    for stage, expected in copies.items():
        for rank in range(ranks):
            assert abs(held[stage][rank] - expected * whole) <= 4 * 65_536, (stage, held[stage], whole)


def _gradient_bytes(mesh: Mesh, job_file: Path) -> tuple[int, int]:
    """Bytes of gradients in any buffer: the peak in a step of several micro batches, and those of this rank's
    weights."""
    gradient_buckets.BUCKET_BYTES = BUCKET_BYTES
    training = start(mesh, job_file)
    updater: Any = training.engine.updater
    weights = list(training.engine.model.parameters())
    seen: list[int] = []

    def count(_: Tensor) -> None:
        buckets = updater._shard.gradients._buckets
        held = [bucket.flat for bucket in buckets] + [bucket.local_sum for bucket in buckets]
        held += [weight.grad for weight in weights]
        seen.append(sum(tensor.nbytes for tensor in held if tensor is not None))

    for weight in weights:
        weight.register_post_accumulate_grad_hook(count)
    one_step(training, 1)
    assert len(seen) == len(weights) * 2, "two rounds"
    return max(seen), sum(part.tensor.nbytes for part in updater.state() if part.name.startswith("model."))


@pytest.mark.slow(target="layouts")
def test_stage_2_stores_its_own_gradients_and_two_buckets(job: Callable[..., Path]) -> None:
    model = {"layers": 8, "width": 64, "kv_heads": 4, "feed_forward": 192, "tied_embeddings": False}
    results = on_mesh(Degrees(shard=4), _gradient_bytes, job(4, model=model, parallelism={"zero_stage": 2}))
    whole = sum(own for _, own in results)
    # A bucket is closed by the tensor that fills it, of at most 64 KiB; the most recent gradient still
    # exists.
    largest = 65_536
    for most, own in results:
        assert own <= whole / 4 + largest
        assert own < most <= own + 2 * (BUCKET_BYTES + largest) + largest
        assert most < whole / 2


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_one_data_rank_shards_nothing(tmp_path: Path, data: Path, stage: int) -> None:
    """At degree 1 the model and its updater are those of a spec without a stage."""
    plain, staged = (
        build_here(write_job(tmp_path / name, data, parallelism=given)).engine
        for name, given in (("plain", {}), ("staged", {"zero_stage": stage}))
    )
    assert type(staged) is type(plain) and type(staged.updater) is type(plain.updater)
    kinds = [[type(module) for module in item.model.modules()] for item in (staged, plain)]
    assert kinds[0] == kinds[1] and not any(issubclass(kind, FSDPModule) for kind in kinds[0])
    assert not any(isinstance(weight, DTensor) for weight in staged.model.parameters())
