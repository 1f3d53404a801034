"""A bias as a separate layer, a module with a parameter called weight, so that passes over the model treat it like a
norm."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Bias(nn.Module):
    """Adds a number to each feature: x (…, N) → (…, N), in the dtype of x."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(features))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.weight.to(x.dtype)


def optional_bias(features: int, is_there: bool) -> nn.Module:
    """A bias, or a layer that does nothing."""
    return Bias(features) if is_there else nn.Identity()
