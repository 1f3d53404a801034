"""Initial weights: normal noise, a little smaller where a projection adds to the residual stream (GPT-2).

Each weight is drawn from a generator of its own, seeded by the run's seed and the weight's name. So the weights do
not depend on how many ranks there are, on which rank holds what, or on the order of construction.
"""

from __future__ import annotations

import hashlib
import math

import torch
from torch import Tensor, nn

from trainwright.contracts.model_spec import ModelSpec
from trainwright_trainer.parts import Parts, Slice, whole_parts

_INTO_RESIDUAL = ("attention.output.weight", "feed_forward.down.weight")


def initialize(model: nn.Module, spec: ModelSpec, seed: int, parts: Parts | None = None) -> None:
    """Fill every parameter of ``model`` in place.

    Args:
        parts: what ``model`` holds of the whole weights, of which one at a time is there; all of them when left out.
    """
    held = (parts or whole_parts(model)).held
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(initial_weight(name, held[name].slice, spec, seed))


def initial_weight(name: str, box: Slice, spec: ModelSpec, seed: int) -> Tensor:
    """A box of weight ``name``, float32, on the CPU."""
    if len(box.whole) == 1:
        return torch.ones(box.shape)
    return _noise(name, box.whole, seed)[box.where] * _deviation(name, spec)


def _noise(name: str, shape: tuple[int, ...], seed: int) -> Tensor:
    digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
    return torch.randn(shape, generator=generator)


def _deviation(name: str, spec: ModelSpec) -> float:
    if name.endswith(_INTO_RESIDUAL):
        return spec.initializer_std / math.sqrt(2 * spec.layers)
    return spec.initializer_std
