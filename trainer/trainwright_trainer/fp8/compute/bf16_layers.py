"""Layers of an FP8 run that compute in bfloat16, with a ``Weight`` in place of a parameter.

They have the interface of the model's layers, and ``weight`` returns what its code expects: the matrix in
bfloat16.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from trainwright_trainer.fp8.compute.weight import Weight


class WeightModule(nn.Module):
    """A layer whose parameter is replaced by a ``Weight``."""

    def __init__(self, stored_weight: Weight) -> None:
        super().__init__()
        self.stored_weight = stored_weight

    @property
    def weight(self) -> Tensor:
        """The weight in bfloat16; its gradient goes to the handle."""
        return self.stored_weight.dense()


class BF16Embedding(WeightModule):
    """Token ids (…) → bfloat16 (…, D)."""

    def forward(self, tokens: Tensor) -> Tensor:
        return self.stored_weight.rows(tokens)


class BF16PositionEmbedding(WeightModule):
    """Positions (…) → bfloat16 (…, D). The table is small: its gradient is that of all rows."""

    def forward(self, positions: Tensor) -> Tensor:
        return F.embedding(positions, self.weight)


class BF16Linear(WeightModule):
    """x (…, K) → (…, N), a bfloat16 matmul."""

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight)


class BF16Bias(WeightModule):
    """x (…, N) + weight, in bfloat16."""

    def forward(self, x: Tensor) -> Tensor:
        return x + self.weight


class BF16Norm(WeightModule):
    """RMSNorm over the last dim, bfloat16 in and out."""

    def __init__(self, stored_weight: Weight, epsilon: float | None) -> None:
        super().__init__(stored_weight)
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.stored_weight.handle.shape, self.weight, self.epsilon).type_as(x)


class BF16LayerNorm(WeightModule):
    """LayerNorm over the last dim, bfloat16 in and out."""

    def __init__(self, stored_weight: Weight, epsilon: float, shift: nn.Module) -> None:
        super().__init__(stored_weight)
        self.epsilon = epsilon
        self.shift = shift

    def forward(self, x: Tensor) -> Tensor:
        normed = F.layer_norm(x, self.stored_weight.handle.shape, self.weight, None, self.epsilon)
        shifted: Tensor = self.shift(normed.type_as(x))
        return shifted
