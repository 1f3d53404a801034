"""Small modules that stand where a model had its own, and hold a ``Weight`` where those had a parameter.

They answer to the same calls, and ``weight`` gives what the model's code expects of it: the matrix in bfloat16.
Activations are bfloat16 throughout.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.weak import WeakTensorKeyDictionary

from trainwright.contracts.precision_spec import ScalingKind
from trainwright_trainer.deferred import Deferred
from trainwright_trainer.fp8.linear import Input, OutputGradient, cast_input, linear
from trainwright_trainer.fp8.weights import Weight


class _Weighted(nn.Module):
    def __init__(self, held: Weight) -> None:
        super().__init__()
        self.held = held

    @property
    def weight(self) -> Tensor:
        """The weight in bfloat16; its gradient goes to the handle."""
        return self.held.dense()


class HighEmbedding(_Weighted):
    """Token ids (…) → bfloat16 (…, D)."""

    def forward(self, tokens: Tensor) -> Tensor:
        return self.held.rows(tokens)


class HighLinear(_Weighted):
    """x (…, K) → (…, N), the product in bfloat16."""

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight)


class HighNorm(_Weighted):
    """RMSNorm over the last dim, bfloat16 in and out."""

    def __init__(self, held: Weight, epsilon: float | None) -> None:
        super().__init__(held)
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.held.handle.shape, self.weight, self.epsilon)


class InputCast(nn.Module):
    """Casts the input of one FP8 layer, or of several that read the same one, and keeps the largest amax."""

    amax: Tensor
    """() float32, since the records were last collected. Taking the maximum again, in a recomputation, changes nothing."""

    delayed: Tensor
    """() float32: the scale in force; 0 while the present amax gives it."""

    def __init__(self, scaling: ScalingKind, device: torch.device) -> None:
        super().__init__()
        self.scaling = scaling
        self._seen = WeakTensorKeyDictionary()
        for name in ("amax", "delayed"):
            self.register_buffer(name, torch.zeros((), device=device), persistent=False)

    def forward(self, x: Tensor) -> Input:
        if torch.compiler.is_compiling():
            return self._cast(x)  # The compiler finds equal expressions itself.
        state = (x._version, torch.is_grad_enabled())
        if x not in self._seen or self._seen[x][0] != state:
            self._seen[x] = (state, self._cast(x))
        read: Input = self._seen[x][1]
        return read

    def _cast(self, x: Tensor) -> Input:
        learning = torch.is_grad_enabled()
        with torch.no_grad():
            read = cast_input(x, self.scaling, self.delayed, learning)
            if self.training:
                self.amax.copy_(torch.maximum(self.amax, read.amax))
        return read


class FP8Linear(_Weighted):
    """x (…, K) → (…, N), all three products in FP8."""

    output_gradient_scale: Tensor
    """() float32: the scale in force; 0 while the present amax gives it."""

    deferred: Deferred | None = None
    """Where weight gradients wait that are computed apart from the backward pass."""

    def __init__(self, held: Weight, input_cast: InputCast) -> None:
        super().__init__(held)
        self.input_cast = input_cast
        device = held.handle.device
        self.register_buffer("output_gradient_scale", torch.zeros((), device=device), persistent=False)
        # Neither parameter nor buffer: its "gradient" is the amax of the output's gradient.
        self.output_gradient_probe = torch.zeros((), device=device, requires_grad=True)

    def forward(self, x: Tensor) -> Tensor:
        gradient = OutputGradient(self.output_gradient_scale, self.output_gradient_probe)
        return linear(x, self.input_cast(x), self.held, gradient, self.input_cast.scaling, self.deferred)
