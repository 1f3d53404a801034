"""Faults in ZeRO and FSDP: each changes what is learned, and is detected."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule

from tests.trainer.zero_trainings import CASES, STEPS, Learned, complaints, job_writer, run
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.optim import sharded_updater
from trainwright_trainer.parallel.data import fsdp, owned_parameters, zero
from trainwright_trainer.parallel.data.gradient_buckets import GradientBuckets
from trainwright_trainer.parallel.data.owned_parameters import OwnedParameters
from trainwright_trainer.parallel.data.sharded_gradients import ShardedGradients
from trainwright_trainer.training import materialize


@pytest.fixture(scope="module")
def job(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    return job_writer(data, tmp_path_factory)


def _no_owner_broadcasts() -> None:
    OwnedParameters.broadcast_params = lambda self: None


def _one_owner_does_not_broadcast() -> None:
    right = owned_parameters._tensors
    owned_parameters._tensors = lambda *given: [sent for sent in right(*given) if sent[0] != 1]


def _a_bucket_is_not_reduced() -> None:
    right = ShardedGradients._send

    def wrong(self: Any) -> None:
        if self._sent != 1:
            right(self)
            return
        self._finish_reduce(0)
        self._sent += 1

    ShardedGradients._send = wrong


def _sums_over_shards_only() -> None:
    right = materialize.shard_states

    def wrong(model: Any, parts: Any, mesh: Mesh) -> Any:
        zero.GradientBuckets = lambda weights, *_: GradientBuckets(weights, mesh.shard)
        return right(model, parts, mesh)

    materialize.shard_states = wrong


def _replicas_keep_their_sums() -> None:
    right = ShardedGradients.reduce_when_ready

    def wrong(self: Any) -> None:
        right(self)
        self._last_micro_batch = False

    ShardedGradients.reduce_when_ready = wrong


def _only_the_last_micro_batch_counts() -> None:
    right = ShardedGradients.end_micro_batch

    def wrong(self: Any) -> None:
        right(self)
        for bucket in self._buckets:
            bucket.local_sum.zero_()

    ShardedGradients.end_micro_batch = wrong


def _own_norm() -> None:
    sharded_updater.norm_over = lambda axis, norm: norm


def _shards_are_not_summed_over_replicas() -> None:
    fsdp.make_device_mesh = lambda mesh: DeviceMesh.from_group(mesh.shard.group, "cpu")


def _shards_are_averaged() -> None:
    FSDPModule.set_gradient_divide_factor = lambda self, factor: None


def _vectors_are_not_summed() -> None:
    class Apart(GradientBuckets):
        def mark_ready(self, weights: Any) -> None:
            self._works = [None] * len(self._flat)

        def wait(self) -> None:
            self._works, self._hooks_enabled = [], False

    fsdp.GradientBuckets = Apart


def _vectors_are_counted_by_all() -> None:
    right = materialize.allocate_shards

    def wrong(*given: Any) -> Any:
        found = right(*given)
        return replace(found, written=frozenset(found.weights))

    materialize.allocate_shards = wrong


FAULTS: dict[str, tuple[int, dict[str, Any], Callable[[], None]]] = {
    "owners do not broadcast updated weights": (*CASES["stage 1 over 2"], _no_owner_broadcasts),
    "one owner does not broadcast updated weights": (*CASES["stage 2 over 4"], _one_owner_does_not_broadcast),
    "gradients are summed over shards only": (*CASES["stage 1, 2 replicas of 2"], _sums_over_shards_only),
    "a bucket is left out": (*CASES["stage 2 over 2"], _a_bucket_is_not_reduced),
    "gradient shards are not summed over replicas": (
        *CASES["stage 2, 2 replicas of 2"],
        _replicas_keep_their_sums,
    ),
    "micro batches before the last are lost": (*CASES["stage 2 over 2"], _only_the_last_micro_batch_counts),
    "the norm is that of the rank's own shard": (*CASES["stage 2 over 2"], _own_norm),
    "FSDP shards are not summed over replicas": (
        *CASES["stage 3, 2 replicas of 2"],
        _shards_are_not_summed_over_replicas,
    ),
    "slices are averaged": (*CASES["stage 3 over 2"], _shards_are_averaged),
    "vectors are not summed": (*CASES["stage 3 over 2"], _vectors_are_not_summed),
    "vectors are counted by every rank": (*CASES["stage 3 over 2"], _vectors_are_counted_by_all),
}


@pytest.fixture(scope="module")
def alone(job: Callable[..., Path]) -> Learned:
    (result,) = run(job(1))
    return result


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("fault", FAULTS)
def test_an_injected_fault_is_detected(fault: str, job: Callable[..., Path], alone: Learned) -> None:
    ranks, parallelism, plant = FAULTS[fault]
    results = run(job(ranks, parallelism=parallelism), STEPS, plant)
    try:
        found = complaints(results, alone)
    except AssertionError as error:  # the ranks' shards do not fill the full tensors
        found = [str(error)]
    assert found
