"""The feed-forward network of a block.

    swiglu, geglu   down · (f(gate · x) · (up · x))   a gate decides, feature by feature, how much of a second projection
                                                      passes; f is SiLU or GELU (Shazeer 2020)
    gelu            down · GELU(up · x)               no gate (Hendrycks and Gimpel 2016; GPT-2)

GELU is the approximation by tanh, as in GPT-2 and Gemma.

B sequence   T position   D width   F hidden
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import gelu, silu

from trainwright.contracts.model_spec import ModelSpec
from trainwright_trainer.linear.bias import optional_bias


class FeedForward(nn.Module):
    """(B, T, D) → (B, T, D), without the bias of the last layer, which the block adds."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        hidden, has_bias = spec.feed_forward_width, spec.biases == "all"
        self.is_silu = spec.activation == "swiglu"
        self.gate, self.gate_bias = None, None
        if spec.is_gated:
            self.gate = nn.Linear(spec.width, hidden, bias=False)
            self.gate_bias = optional_bias(hidden, has_bias)
        self.up = nn.Linear(spec.width, hidden, bias=False)
        self.up_bias = optional_bias(hidden, has_bias)
        self.down = nn.Linear(hidden, spec.width, bias=False)

    @property
    def first_names(self) -> tuple[str, ...]:
        """Names of the layers that read the input."""
        return ("up",) if self.gate is None else ("gate", "up")

    @property
    def first_layers(self) -> list[nn.Module]:
        """The layers that read the input."""
        return [self.get_submodule(name) for name in self.first_names]

    def forward(self, x_BTD: Tensor) -> Tensor:
        out_BTD: Tensor = self.down(self.hidden(*(layer(x_BTD) for layer in self.first_layers)))
        return out_BTD

    def hidden(self, *projections_BTF: Tensor) -> Tensor:
        """(B, T, F) between the first layers and the last one."""
        up_BTF: Tensor = self.up_bias(projections_BTF[-1])
        if self.gate_bias is None:
            return gelu(up_BTF, approximate="tanh")
        gate_BTF: Tensor = self.gate_bias(projections_BTF[0])
        return (silu(gate_BTF) if self.is_silu else gelu(gate_BTF, approximate="tanh")) * up_BTF
