"""LayerNorm (Ba et al. 2016) as passes over the model treat it: its bias, if it has one, is a layer of its own.

B sequence   T position   D width
"""

from __future__ import annotations

from torch import Tensor, nn

from trainwright_trainer.linear.bias import optional_bias


class LayerNorm(nn.LayerNorm):
    """(B, T, D) → (B, T, D)."""

    def __init__(self, width: int, epsilon: float, has_bias: bool) -> None:
        super().__init__(width, eps=epsilon, bias=False)
        self.shift = optional_bias(width, has_bias)

    def forward(self, x_BTD: Tensor) -> Tensor:
        shifted_BTD: Tensor = self.shift(super().forward(x_BTD))
        return shifted_BTD
