"""A weight of a transformer block, as the parts of the block declare it for trainer and planner."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # ``model_spec`` itself imports the names of ``ATTENTIONS``
    from trainwright.contracts.model_spec import ModelSpec


@dataclass(frozen=True)
class BlockWeight:
    """One weight of a block."""

    shape: Callable[[ModelSpec], tuple[int, ...]]
    exported_as: str
    """Its name below a layer in Hugging Face's layout."""

    shard_dim: int | None = None
    """The dim that tensor ranks split. None: each rank has the entire weight, and they sum its gradients, because each
    computes some of the heads or of the tokens."""

    is_linear: bool = False
    """Whether it is the matrix (features out, features in) of a linear layer: FP8 runs cast it."""

    reads_input: bool = False
    """Whether it multiplies the input of its part. All weights that do share its cast in FP8, and the trainer may multiply
    it with all of them at once."""

    adds_to_residual: bool = False
    """Whether its matmul is added to the residual stream: its initial values are smaller (GPT-2)."""

    is_bias: bool = False
    """Whether its initial values are 0; those of other vectors are 1."""

    present: Callable[[ModelSpec], bool] = lambda m: True
    """Whether a model has it."""

    def size(self, model: ModelSpec) -> int:
        """Elements."""
        return math.prod(self.shape(model))


def bias_weight(
    features: Callable[[ModelSpec], int], exported_as: str, *kinds: str, shard_dim: int | None = None
) -> BlockWeight:
    """A bias that models with ``biases`` of these kinds have."""
    return BlockWeight(
        lambda m: (features(m),), exported_as, shard_dim, is_bias=True, present=lambda m: m.biases in kinds
    )
