"""Initial weights: normal noise, smaller where a projection adds to the residual stream (GPT-2).

Each weight has its own generator, seeded with the run's seed and the weight's name. So the weights do
not depend on the number of ranks, on the sharding, or on the order of construction.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from trainwright.contracts.block_parts import is_bias, weight_in_block
from trainwright.contracts.model_spec import ModelSpec
from trainwright_trainer.distributed.shard_spec import ShardSpecs, Slice, unsharded_specs

_MAX_THREADS = 8
"""Each has an entire weight in host memory, on every rank of a node."""


def initialize(model: nn.Module, spec: ModelSpec, seed: int, shard_specs: ShardSpecs | None = None) -> None:
    """Fill every parameter of ``model`` in place.

    Args:
        shard_specs: what ``model`` has of each weight; by default all of it.
    """
    local = (shard_specs or unsharded_specs(model)).local
    weights = dict(model.named_parameters())
    fill_weights(weights, {name: local[name].slice for name in weights}, spec, seed)


def fill_weights(
    weights: Mapping[str, Tensor], slices: Mapping[str, Slice], spec: ModelSpec, seed: int
) -> None:
    """Set ``weights`` to slices of their initial values. Each thread has one entire weight in memory at a time."""

    def fill(name: str) -> None:
        with torch.no_grad():  # applies to one thread only
            weights[name].copy_(initial_weight(name, slices[name], spec, seed))

    with _threads() as threads:
        for _ in threads.map(fill, weights):
            pass


def initial_weights(slices: Mapping[str, Slice], spec: ModelSpec, seed: int) -> dict[str, Tensor]:
    """The slices of the named weights, float32, on the CPU."""
    with _threads() as threads:
        found = threads.map(lambda name: initial_weight(name, slices[name], spec, seed), slices)
        return dict(zip(slices, found, strict=True))


def initial_weight(name: str, box: Slice, spec: ModelSpec, seed: int) -> Tensor:
    """A slice of weight ``name``, float32, on the CPU."""
    if len(box.full_shape) == 1:
        return torch.zeros(box.shape) if is_bias(name) else torch.ones(box.shape)
    return _noise(name, box.full_shape, seed)[box.slices] * _deviation(name, spec)


def _noise(name: str, shape: tuple[int, ...], seed: int) -> Tensor:
    digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
    return torch.randn(shape, generator=generator)


def _deviation(name: str, spec: ModelSpec) -> float:
    weight = weight_in_block(name)
    if weight is not None and weight.adds_to_residual:
        return spec.initializer_std / math.sqrt(2 * spec.layers)
    return spec.initializer_std


@contextmanager
def _threads() -> Iterator[ThreadPoolExecutor]:
    """Several, because torch draws noise on one thread only; within each, torch starts no others."""
    before = torch.get_num_threads()
    count = min(before, _MAX_THREADS)
    try:
        with ThreadPoolExecutor(
            count, "initial-weights", initializer=torch.set_num_threads, initargs=(1,)
        ) as pool:
            yield pool
    finally:
        torch.set_num_threads(before)  # threads that start later take the number that was set last
