"""Headroom μ ≤ 1 keeps a gradient away from the largest code (FP8-LM, section 3.1: automatic scaling).

It is halved when more than 0.001 % of a tensor's values were too large for its scale on any rank, before the clamp, and
doubles in 1,000 steps. The paper counts codes at the maximum; with scales that are powers of two the largest element
alone is there in 5 % of the steps, and μ would go to zero for small tensors. With the current amax a value is too large
only if the amax was not finite, so μ is 1 in a healthy run.

For a tensor that is sharded over a tensor axis, values are counted over all of its slices.

    P weights
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trainwright_trainer.distributed.axis import Axis

_TOO_MANY = 1e-5
_GROWTH = 2.0 ** (1 / 1_000)
_SMALLEST = 2.0**-10


class Headroom:
    """μ of each weight's gradient, equal on all ranks."""

    def __init__(self, elements: Sequence[int], data: Axis, tensor: Axis | None = None) -> None:
        """``elements`` of each weight on this rank; ``tensor`` is the axis that they are sharded over."""
        self._data, self._tensor = data, tensor
        self._elements = self._over_slices(torch.tensor(elements, dtype=torch.float32, device=data.device))
        self.factor = torch.ones(len(elements), device=data.device)
        """(P,): μ."""
        self.too_large = torch.zeros(len(elements), device=data.device)
        """(P,): how many of this rank's values were too large for their scale when it was last computed."""

    def adapt(self) -> None:
        """Update μ at the end of a step."""
        fraction = self._data.all_reduce_max(self._over_slices(self.too_large.clone()) / self._elements)
        moved = torch.where(fraction > _TOO_MANY, self.factor / 2, self.factor * _GROWTH)
        self.factor.copy_(moved.clamp(_SMALLEST, 1.0))
        self.too_large.zero_()

    def _over_slices(self, count: Tensor) -> Tensor:
        """The sum over slices. A replicated tensor counts once per rank, but only fractions are used."""
        return count if self._tensor is None else self._tensor.all_reduce(count)
