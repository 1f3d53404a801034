"""E4M3 codes of FP8 layers' weights, by rows and transposed, cast once per step for all of its micro batches.

The codes are those that a layer would cast by itself, bit for bit; ``planner.memory.keeps_weight_operands`` says for which
runs 2 bytes per weight are worth it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from trainwright_trainer.fp8.compute.cast_transpose import cast_and_transpose_into
from trainwright_trainer.fp8.compute.formats import E4M3
from trainwright_trainer.fp8.compute.weight import Weight


class WeightOperands:
    """The operands of ``weights``, which are matrices whose values are attached."""

    def __init__(self, weights: Sequence[Weight]) -> None:
        self._weights = weights
        for weight in weights:
            codes_NK = torch.empty(weight.codes.shape, dtype=E4M3, device=weight.codes.device)
            weight.operands = (codes_NK, torch.empty(codes_NK.t().shape, dtype=E4M3, device=codes_NK.device))

    def refresh(self) -> None:
        """Cast the weights again after an update."""
        if not self._weights:
            return
        factors = torch._foreach_div(
            [weight.scale for weight in self._weights], [weight.cast_scale for weight in self._weights]
        )
        for weight, factor in zip(self._weights, factors, strict=True):
            assert weight.operands is not None
            cast_and_transpose_into(weight.codes, factor, *weight.operands)
