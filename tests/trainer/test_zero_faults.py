"""Faults in how data ranks share what they hold: each changes what is learnt, and is seen."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule

from tests.trainer.sharing import (
    CASES,
    STEPS,
    Learned,
    complaints,
    job_writer,
    run,
)
from trainwright_trainer import held_model
from trainwright_trainer.mesh import Mesh
from trainwright_trainer.optim import sharded
from trainwright_trainer.parallel.data import shares, slices
from trainwright_trainer.parallel.data.gradient_shares import GradientShares
from trainwright_trainer.parallel.data.owners import OwnedWeights
from trainwright_trainer.parallel.data.replicate import GradientBuckets


@pytest.fixture(scope="module")
def job(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    return job_writer(data, tmp_path_factory)


def _nobody_hands_round() -> None:
    OwnedWeights.hand_round = lambda self: None  # type: ignore[method-assign]


def _one_owner_hands_nothing_round() -> None:
    right = OwnedWeights.__init__

    def wrong(self: Any, *given: Any) -> None:
        right(self, *given)
        self._buffers = [(owner, buffer) for owner, buffer in self._buffers if owner != 1]

    OwnedWeights.__init__ = wrong  # type: ignore[method-assign]


def _a_bucket_stays() -> None:
    right = GradientShares._send

    def wrong(self: Any) -> None:
        if self._sent != 1:
            right(self)
            return
        self._settle(0)
        self._sent += 1

    GradientShares._send = wrong  # type: ignore[method-assign]


def _sums_over_shards_only() -> None:
    right = held_model.share_states

    def wrong(model: Any, parts: Any, mesh: Mesh) -> Any:
        shares.GradientBuckets = lambda weights, *_: GradientBuckets(weights, mesh.shard)  # type: ignore
        return right(model, parts, mesh)

    held_model.share_states = wrong


def _replicas_keep_their_sums() -> None:
    right = GradientShares.send_as_ready

    def wrong(self: Any) -> None:
        right(self)
        self._last = False

    GradientShares.send_as_ready = wrong  # type: ignore[method-assign]


def _only_the_last_round_counts() -> None:
    right = GradientShares.end_round

    def wrong(self: Any) -> None:
        right(self)
        for bucket in self._buckets:
            bucket.share.zero_()

    GradientShares.end_round = wrong  # type: ignore[method-assign]


def _own_norm() -> None:
    sharded.norm_over = lambda axis, norm: norm


def _slices_of_replicas_stay_apart() -> None:
    slices._device_mesh = lambda mesh: DeviceMesh.from_group(mesh.shard.group, "cpu")  # type: ignore


def _slices_are_averaged() -> None:
    FSDPModule.set_gradient_divide_factor = lambda self, factor: None  # type: ignore[method-assign]


def _vectors_stay_apart() -> None:
    class Apart(GradientBuckets):
        def complete(self, weights: Any) -> None:
            self._works = [None] * len(self._flat)  # type: ignore[list-item]

        def wait(self) -> None:
            self._works, self._listening = [], False

    slices.GradientBuckets = Apart  # type: ignore[misc]


def _vectors_are_counted_by_all() -> None:
    right = held_model.share_weights

    def wrong(*given: Any) -> Any:
        found = right(*given)
        return replace(found, spoken_for=frozenset(found.weights))

    held_model.share_weights = wrong


FAULTS: dict[str, tuple[int, dict[str, Any], Callable[[], None]]] = {
    "owners keep the weights they moved": (*CASES["stage 1 over 2"], _nobody_hands_round),
    "one owner keeps the weights it moved": (*CASES["stage 2 over 4"], _one_owner_hands_nothing_round),
    "gradients are summed over shards only": (*CASES["stage 1, 2 replicas of 2"], _sums_over_shards_only),
    "a bucket is left out": (*CASES["stage 2 over 2"], _a_bucket_stays),
    "shares are not summed over replicas": (
        *CASES["stage 2, 2 replicas of 2"],
        _replicas_keep_their_sums,
    ),
    "rounds before the last are lost": (*CASES["stage 2 over 2"], _only_the_last_round_counts),
    "the norm is that of the own share": (*CASES["stage 2 over 2"], _own_norm),
    "slices are not summed over replicas": (
        *CASES["stage 3, 2 replicas of 2"],
        _slices_of_replicas_stay_apart,
    ),
    "slices are averaged": (*CASES["stage 3 over 2"], _slices_are_averaged),
    "vectors are not summed": (*CASES["stage 3 over 2"], _vectors_stay_apart),
    "vectors are counted by every rank": (*CASES["stage 3 over 2"], _vectors_are_counted_by_all),
}


@pytest.fixture(scope="module")
def alone(job: Callable[..., Path]) -> Learned:
    (told,) = run(job(1))
    return told


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_caught(fault: str, job: Callable[..., Path], alone: Learned) -> None:
    ranks, parallelism, plant = FAULTS[fault]
    told = run(job(ranks, parallelism=parallelism), STEPS, plant)
    try:
        found = complaints(told, alone)
    except AssertionError as error:  # the parts of the ranks do not make whole tensors
        found = [str(error)]
    assert found
