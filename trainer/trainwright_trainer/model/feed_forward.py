"""SwiGLU (Shazeer 2020): a gate decides, feature by feature, how much of a second projection passes.

B sequence   T position   D width   F hidden
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import silu

from trainwright.contracts.model_spec import ModelSpec


class FeedForward(nn.Module):
    """(B, T, D) → (B, T, D)."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.gate = nn.Linear(spec.width, spec.feed_forward_width, bias=False)
        self.up = nn.Linear(spec.width, spec.feed_forward_width, bias=False)
        self.down = nn.Linear(spec.feed_forward_width, spec.width, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        out_BTD: Tensor = self.down(self.hidden(self.gate(x_BTD), self.up(x_BTD)))
        return out_BTD

    def hidden(self, gate_BTF: Tensor, up_BTF: Tensor) -> Tensor:
        """(B, T, F) between the projections."""
        return silu(gate_BTF) * up_BTF
