"""RMSNorm (Zhang and Sennrich 2019) and LayerNorm (Ba et al. 2016) as passes over the model treat them: a bias, if there is one, is a
layer of its own.

Both return the dtype of their input. Under autocast on a GPU, torch computes LayerNorm in float32, and since torch 2.12 RMSNorm too, and
returns float32: the residual stream after a norm of what a block adds, the input that tensor ranks gather, and the activations that
pipeline stages send would become float32 as well.

B sequence   T position   D width
"""

from __future__ import annotations

from torch import Tensor, nn

from trainwright_trainer.linear.bias import optional_bias


class RMSNorm(nn.RMSNorm):
    """(B, T, D) → (B, T, D)."""

    def forward(self, x_BTD: Tensor) -> Tensor:
        return super().forward(x_BTD).type_as(x_BTD)


class LayerNorm(nn.LayerNorm):
    """(B, T, D) → (B, T, D)."""

    def __init__(self, width: int, epsilon: float, has_bias: bool) -> None:
        super().__init__(width, eps=epsilon, bias=False)
        self.shift = optional_bias(width, has_bias)

    def forward(self, x_BTD: Tensor) -> Tensor:
        shifted_BTD: Tensor = self.shift(super().forward(x_BTD).type_as(x_BTD))
        return shifted_BTD
