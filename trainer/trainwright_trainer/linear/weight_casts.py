"""Casts of float32 weights to the dtype of their products, made once per step for all of its micro batches.

Autocast casts a weight in each forward pass and keeps the cast until the backward pass, for each micro batch in flight. So
sharing one cast does not raise the peak memory of a step, unless activations are recomputed: then autocast keeps no casts.
``planner.memory.keeps_weight_casts`` decides.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from trainwright_trainer.linear.dense import DenseLinear


class WeightCasts:
    """The casts of ``layers``, whose weights have their memory."""

    def __init__(self, layers: Sequence[DenseLinear], dtype: torch.dtype) -> None:
        self._weights = [layer.weight.detach() for layer in layers]
        self._casts = [torch.empty_like(weight, dtype=dtype) for weight in self._weights]
        for layer, cast in zip(layers, self._casts, strict=True):
            layer.weight_cast = cast

    def refresh(self) -> None:
        """Cast the weights again, before the first micro batch of a step."""
        if self._casts:
            torch._foreach_copy_(self._casts, self._weights)
