"""Casts of float32 weights to the dtype of their products, made once per step for all of its micro batches.

Autocast casts a weight in each forward pass and keeps the cast until the backward pass, for each micro batch in flight. So
sharing one cast does not raise the peak memory of a step, unless activations are recomputed: then autocast keeps no casts.
``planner.memory.keeps_weight_casts`` decides.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from trainwright_trainer.linear.dense import DenseLinear
from trainwright_trainer.linear.fused_linear import HasFusedLayers


class WeightCasts:
    """The casts of ``layers``, whose weights are allocated."""

    def __init__(
        self, layers: Sequence[DenseLinear], dtype: torch.dtype, fused: Sequence[HasFusedLayers] = ()
    ) -> None:
        """``fused``: modules whose products read the casts of several of ``layers`` as one tensor."""
        for module in fused:
            _allocate_jointly(module, dtype)
        for layer in layers:
            if layer.weight_cast is None:
                layer.weight_cast = torch.empty_like(layer.weight, dtype=dtype, requires_grad=False)
        self._weights = [layer.weight.detach() for layer in layers]
        self._casts = [layer.weight_cast for layer in layers if layer.weight_cast is not None]

    def refresh(self) -> None:
        """Cast the weights again, before the first micro batch of a step."""
        if self._casts:
            torch._foreach_copy_(self._casts, self._weights)


def _allocate_jointly(module: HasFusedLayers, dtype: torch.dtype) -> None:
    weights = [layer.weight for layer in module.fused_layers]
    rows = [len(weight) for weight in weights]
    module.fused_cast = weights[0].new_empty((sum(rows), weights[0].shape[1]), dtype=dtype)
    for layer, cast in zip(module.fused_layers, module.fused_cast.split(rows), strict=True):
        layer.weight_cast = cast
