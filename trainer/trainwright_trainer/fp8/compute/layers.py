"""Layers that replace those of a model, with a ``Weight`` in place of a parameter.

They have the same interface, and ``weight`` returns what the model's code expects: the matrix in bfloat16.
Activations are bfloat16 throughout.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.weak import WeakTensorKeyDictionary

from trainwright.contracts.precision_spec import ScalingKind
from trainwright_trainer.fp8.compute.linear import FP8Matmuls, cast_input
from trainwright_trainer.fp8.compute.weight import Weight
from trainwright_trainer.linear.deferred_weight_gradients import DeferredWeightGradients
from trainwright_trainer.linear.product import Cast, linear


class _WeightModule(nn.Module):
    def __init__(self, stored_weight: Weight) -> None:
        super().__init__()
        self.stored_weight = stored_weight

    @property
    def weight(self) -> Tensor:
        """The weight in bfloat16; its gradient goes to the handle."""
        return self.stored_weight.dense()


class BF16Embedding(_WeightModule):
    """Token ids (…) → bfloat16 (…, D)."""

    def forward(self, tokens: Tensor) -> Tensor:
        return self.stored_weight.rows(tokens)


class BF16Linear(_WeightModule):
    """x (…, K) → (…, N), a bfloat16 matmul."""

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight)


class BF16Norm(_WeightModule):
    """RMSNorm over the last dim, bfloat16 in and out."""

    def __init__(self, stored_weight: Weight, epsilon: float | None) -> None:
        super().__init__(stored_weight)
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.stored_weight.handle.shape, self.weight, self.epsilon)


class InputCast(nn.Module):
    """Casts the input of one FP8 layer, or of several that read the same one, and keeps the largest amax."""

    amax: Tensor
    """() float32, since the history last collected it. Taking the maximum again, in a recomputation, changes
    nothing."""

    delayed: Tensor
    """() float32: the scale to use; 0 means that of the current amax."""

    def __init__(self, scaling: ScalingKind, device: torch.device, of_norm: bool = False) -> None:
        """``of_norm``: the input is the output of a norm."""
        super().__init__()
        self.scaling, self._of_norm = scaling, of_norm
        self._cache = WeakTensorKeyDictionary()
        for name in ("amax", "delayed"):
            self.register_buffer(name, torch.zeros((), device=device), persistent=False)

    def forward(self, x: Tensor) -> Cast:
        if torch.compiler.is_compiling():
            return self._cast(x)  # the compiler eliminates equal expressions itself
        state = (x._version, torch.is_grad_enabled())
        if x not in self._cache or self._cache[x][0] != state:
            self._cache[x] = (state, self._cast(x))
        cast: Cast = self._cache[x][1]
        return cast

    def _cast(self, x: Tensor) -> Cast:
        learning = torch.is_grad_enabled()
        with torch.no_grad():
            cast = cast_input(x, self.scaling, self.delayed, learning, transpose_now=self._of_norm)
            assert cast.amax is not None
            if self.training:
                self.amax.copy_(torch.maximum(self.amax, cast.amax))
        return cast


class FP8Linear(_WeightModule):
    """x (…, K) → (…, N), all three matmuls in FP8."""

    output_gradient_scale: Tensor
    """() float32: the scale to use; 0 means that of the current amax."""

    deferred: DeferredWeightGradients | None = None
    """Takes weight gradients that are computed outside the backward pass."""

    def __init__(self, stored_weight: Weight, input_cast: InputCast) -> None:
        super().__init__(stored_weight)
        self.input_cast = input_cast
        device = stored_weight.handle.device
        self.register_buffer("output_gradient_scale", torch.zeros((), device=device), persistent=False)
        # Neither parameter nor buffer: its "gradient" is the amax of the output's gradient.
        self.output_gradient_probe = torch.zeros((), device=device, requires_grad=True)

    def forward(self, x: Tensor) -> Tensor:
        (y,) = linear(x, self.input_cast(x), [self.matmuls()])
        return y

    def matmuls(self) -> FP8Matmuls:
        return FP8Matmuls(
            self.stored_weight,
            self.input_cast.scaling,
            self.output_gradient_scale,
            self.output_gradient_probe,
            self.deferred,
        )
