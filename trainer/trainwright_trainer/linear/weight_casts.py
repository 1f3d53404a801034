"""Casts of float32 weights to the dtype of their matmuls, made once per update for all micro batches of the next step.

Autocast casts a weight in each forward pass and keeps the cast until the backward pass, for each micro batch in flight. So
sharing one cast does not raise the peak memory of a step, unless activations are recomputed: then autocast keeps no casts.
``planner.memory.keeps_weight_casts`` decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import torch
from torch import nn

from trainwright_trainer.linear.dense import DenseLinear
from trainwright_trainer.linear.fused_linear import HasFusedLayers


class WeightCasts:
    """The casts of ``layers``, whose weights are allocated."""

    def __init__(
        self, layers: Sequence[DenseLinear], dtype: torch.dtype, fused: Sequence[HasFusedLayers] = ()
    ) -> None:
        """``fused``: modules whose matmuls read the casts of several of ``layers`` as one tensor."""
        for module in fused:
            _allocate_jointly(module, dtype)
        for layer in layers:
            if layer.weight_cast is None:
                layer.weight_cast = torch.empty_like(layer.weight, dtype=dtype, requires_grad=False)
        self._layers = layers

    def refresh(self, updated: AbstractSet[nn.Parameter] | None = None) -> None:
        """Cast the weights again, after they changed; only those in ``updated``, if given."""
        pairs = [
            (layer.weight_cast, layer.weight.detach())
            for layer in self._layers
            if layer.weight_cast is not None and (updated is None or layer.weight in updated)
        ]
        if pairs:
            casts, weights = zip(*pairs, strict=True)
            torch._foreach_copy_(casts, weights)


def _allocate_jointly(module: HasFusedLayers, dtype: torch.dtype) -> None:
    weights = [layer.weight for layer in module.fused_layers]
    rows = [len(weight) for weight in weights]
    module.fused_cast = weights[0].new_empty((sum(rows), weights[0].shape[1]), dtype=dtype)
    for layer, cast in zip(module.fused_layers, module.fused_cast.split(rows), strict=True):
        layer.weight_cast = cast
