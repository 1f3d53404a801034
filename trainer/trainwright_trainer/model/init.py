"""Initial weights: normal noise, smaller where a projection adds to the residual stream (GPT-2).

Each weight has its own generator, seeded with the run's seed and the weight's name. So the weights do
not depend on the number of ranks, on the sharding, or on the order of construction.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor, nn

from trainwright.contracts.block_parts import is_bias, weight_in_block
from trainwright.contracts.model_spec import ModelSpec
from trainwright_trainer.distributed.shard_spec import ShardSpecs, Slice, unsharded_specs


def initialize(model: nn.Module, spec: ModelSpec, seed: int, shard_specs: ShardSpecs | None = None) -> None:
    """Fill every parameter of ``model`` in place.

    Args:
        shard_specs: what ``model`` has of each weight; by default all of it. Each thread has one entire weight
            in memory at a time.
    """
    local = (shard_specs or unsharded_specs(model)).local

    def fill(name: str, weight: nn.Parameter) -> None:
        with torch.no_grad():  # applies to one thread only
            weight.copy_(initial_weight(name, local[name].slice, spec, seed))

    with _threads() as threads:
        for _ in threads.map(lambda named: fill(*named), model.named_parameters()):
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


def _threads() -> ThreadPoolExecutor:
    """As many as this process may use: torch draws noise on one thread only."""
    return ThreadPoolExecutor(torch.get_num_threads(), "initial-weights")
