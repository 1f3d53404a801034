"""An FP8 linear layer (FP8-LM, arXiv 2310.18313, section 2; formats of Micikevicius et al. 2022, arXiv 2209.05433).

**Three matmuls**, summed in float32 on tensor cores (``matmul.scaled_matmul``; on a CPU the same numbers are multiplied in
a wider format). ``linear.linear_function`` says when each is computed.

    y  = x · Wᵀ      E4M3 · E4M3 → bfloat16, contracted over K, with fast accumulation
    dx = dy · W      E5M2 · E4M3 → bfloat16, contracted over N
    dW = dyᵀ · x     E5M2 · E4M3 → the dtype that gradients are accumulated in, contracted over M

    M tokens   K features in   N features out

E4M3 has finer steps, and E5M2 has the range that gradients need. With scales by block dy is E4M3 too (DeepSeek-V3,
arXiv 2412.19437, section 3.3): a block of 128 needs less range, and GPUs have no such matmuls of E5M2.

**Casts.** Tensor cores require the contracted dim to be contiguous, and each matrix is contracted over a different dim
in each of its two matmuls. With one scale per tensor, its codes are transposed for the second matmul. Scales by row
or block may not vary along the contracted dim, so with these it is cast twice (``casting``).

    x     once for all layers that read it (``InputCast``)
    W     for each matmul from the codes that the optimizer stores, or once per step for all (``Weight.operands``)
    dy    once in the backward pass

**Scales.** A number is code · scale, and the scale is the power of two with which the largest absolute value, the amax, fills
the format (``formats.scale_for``). The amax is

    x     that of the tensor, or with delayed scaling the largest of the last 16 steps
    W     that of the master weight, which the optimizer knows when it writes it: no pass over the weight
    dy    as for x

``scaling.AmaxHistory`` reads the amaxes of x and dy after each step and writes the delayed scales; a scale of 0 means
that of the current amax. The layer only remembers them: x's in a buffer, dy's as the gradient of a *probe*, a scalar
that the computation does not use. So the layer stays a function of its inputs, and a compiler or a recomputation may
run it again.

**Saved for the backward pass**: the codes of x, as dW reads them, one byte per element, shared by the layers that read
x. Nothing is saved of W, because its stored codes remain, nor of dy, which exists only in the backward pass.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from trainwright.contracts.precision_spec import ScalingKind
from trainwright_trainer.distributed.axis import Axis
from trainwright_trainer.fp8.compute.bf16_layers import WeightModule
from trainwright_trainer.fp8.compute.cast_transpose import transpose
from trainwright_trainer.fp8.compute.casting import (
    cast_both_ways,
    cast_by_rows,
    cast_per_block,
    cast_per_row,
    cast_with_amax,
    gradient_format,
    transposed,
)
from trainwright_trainer.fp8.compute.formats import E4M3, amax_of, cast_, widen
from trainwright_trainer.fp8.compute.matmul import Operand, scaled_matmul
from trainwright_trainer.fp8.compute.weight import StoredMatrix, Weight
from trainwright_trainer.linear.deferred_weight_gradients import DeferredWeightGradients
from trainwright_trainer.linear.linear_function import Cast, Factor, Matrix, RowMatmul, Stored, linear


class FP8Linear(WeightModule):
    """x (…, K) → (…, N), bfloat16."""

    output_gradient_scale: Tensor
    """() float32: the scale of dy; 0 means that of the current amax."""

    deferred: DeferredWeightGradients | None = None
    """Takes dW if it is computed after the backward pass."""

    def __init__(self, stored_weight: Weight, input_cast: InputCast) -> None:
        super().__init__(stored_weight)
        self.input_cast = input_cast
        device = stored_weight.handle.device
        self.register_buffer("output_gradient_scale", torch.zeros((), device=device), persistent=False)
        # Neither parameter nor buffer: its "gradient" is the amax of dy.
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


class InputCast(nn.Module):
    """Casts x (…, K) for one FP8 layer, or for several that read the same one, and keeps the largest amax."""

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
            cast = self._cast_for_both(x.flatten(0, -2)) if learning else self._by_rows(x.flatten(0, -2))
            assert cast.amax is not None
            if self.training:
                self.amax.copy_(torch.maximum(self.amax, cast.amax))
        return cast

    def _cast_for_both(self, x_MK: Tensor) -> Cast:
        """Cast x for y and dW. Codes with one scale may also be transposed when dW is computed. But on a GPU one kernel writes them
        both ways (``cast_transpose``), which pays for the output of a norm: the backward pass reads the other inputs anyway,
        and a compiler lets it cast them again, but would have to compute the norm again.
        """
        if self.scaling is ScalingKind.TENSOR and not (self._of_norm and x_MK.device.type == "cuda"):
            return self._by_rows(x_MK)
        return cast_both_ways(x_MK, E4M3, self.scaling, self.delayed)

    def _by_rows(self, x_MK: Tensor) -> Cast:
        return cast_by_rows(x_MK, E4M3, self.scaling, self.delayed)


class FP8Matmuls(NamedTuple):
    """The three matmuls; x, W and dy are ``Operand``s."""

    stored_weight: Weight
    scaling: ScalingKind
    output_gradient_scale: Tensor
    probe: Tensor
    deferred: DeferredWeightGradients | None
    total: None = None
    """torch's scaled matmuls cannot add to a sum (``_scaled_mm``, to 2.13): autograd does."""

    @property
    def weight(self) -> Tensor:
        """A leaf with the shape of W, its gradient, and no values (``weight``)."""
        return self.stored_weight.handle

    def leaf(self) -> Tensor:
        return self.weight if self.deferred is None else self.weight.detach()

    def stored(self, leaf: Tensor) -> Stored:
        return self.stored_weight.stored()

    def output(self, stored: Stored) -> RowMatmul:
        """y from rows of x."""
        weight_NK = cast_weight(StoredMatrix(*stored), self.scaling)
        return partial(_multiply, weight_NK, fast_accumulation=True)

    def cast_output_gradient(self, dy_MN: Tensor, axis: Axis | None) -> Cast:
        format = gradient_format(self.scaling)
        if axis is None:
            return cast_both_ways(dy_MN, format, self.scaling, self.output_gradient_scale)
        # All parts have one scale, and are transposed once they are gathered.
        amax = axis.all_reduce_max(amax_of(dy_MN))
        return Cast(cast_with_amax(dy_MN, format, self.output_gradient_scale, amax), None, amax)

    def input_gradient(self, stored: Stored) -> RowMatmul:
        """dx from rows of dy."""
        return partial(_multiply, cast_transposed_weight(StoredMatrix(*stored), self.scaling))

    def weight_gradient(self, dy: Factor, x: Factor) -> Tensor:
        scale = dy.matrix[1]
        return scaled_matmul(_over_tokens(dy, scale), _over_tokens(x, scale), self.weight.dtype)

    def add_weight_gradient(self, total: Tensor, dy: Factor, x: Factor) -> None:
        total.add_(self.weight_gradient(dy, x))


def _multiply(weight: Operand, rows: Matrix, fast_accumulation: bool = False) -> Tensor:
    return scaled_matmul(Operand(*rows), weight, torch.bfloat16, fast_accumulation)


def _over_tokens(factor: Factor, after: Tensor) -> Operand:
    operand = Operand(*factor.matrix)
    if factor.transposed:
        return operand
    assert operand.scale.ndim == 0
    return Operand(transpose(operand.codes, after), operand.scale)


def cast_weight(stored: StoredMatrix, scaling: ScalingKind) -> Operand:
    """W (N, K), for y."""
    codes_NK, scale, cast_scale, _ = stored
    if cast_scale is None:
        assert scaling is ScalingKind.TENSOR and codes_NK.dtype is E4M3
        return Operand(codes_NK, scale)
    if scaling is ScalingKind.TENSOR:
        return Operand(cast_(codes_NK.float() * (scale / cast_scale), E4M3), cast_scale)
    real_NK = widen(codes_NK, torch.float32) * scale
    if scaling is ScalingKind.ROW:
        return cast_per_row(real_NK, E4M3).operand
    return cast_per_block(real_NK, E4M3, rows=128).operand


def cast_transposed_weight(stored: StoredMatrix, scaling: ScalingKind) -> Operand:
    """Wᵀ (K, N), for dx: one scale, or square blocks of one, allow a transpose; rows are cast again as columns."""
    codes_NK, scale, _, codes_KN = stored
    if codes_KN is not None:
        return Operand(codes_KN, scale)
    if scaling is ScalingKind.ROW:
        return cast_per_row((widen(codes_NK, torch.float32) * scale).t(), E4M3).operand
    return transposed(cast_weight(stored, scaling))
