"""A linear layer whose three products are all in FP8 (FP8-LM, section 2; formats of Micikevicius et al. 2022).

    y  = x · Wᵀ      E4M3 · E4M3, contracted over K, with fast accumulation
    dx = dy · W      E5M2 · E4M3, contracted over N
    dW = dyᵀ · x     E5M2 · E4M3, contracted over M

    M tokens   K features in   N features out

Each operand is cast for the product that it enters. With one scale a tensor the codes of one product serve the next,
transposed; scales by row or block differ from product to product, and so do the codes.

What waits for the backward pass is x as the dW product wants it, one byte an element, and nothing else: W is cast again
from where its numbers lie. All is a function of its inputs: the amax of dy leaves as the gradient of ``probe``, a
scalar that takes no part in the sum.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from trainwright.contracts.precision_spec import ScalingKind
from trainwright_trainer.deferred import Deferred, Work
from trainwright_trainer.fp8.formats import E4M3, E5M2, cast_, widen
from trainwright_trainer.fp8.products import (
    Operand,
    by_block,
    by_row,
    cast_first,
    cast_last,
    multiply,
    turned,
)
from trainwright_trainer.fp8.weights import Weight


class Input(NamedTuple):
    """An input as its products want it; layers that read the same input share one."""

    now: Operand
    """(M, K), for y."""

    later: Operand | None
    """(K, M), for dW; None when ``now`` serves it too, or nothing is learned."""

    amax: Tensor
    """() float32."""


class OutputGradient(NamedTuple):
    """How the gradient of an output is cast, and where its amax goes."""

    delayed: Tensor
    """() float32: its scale; 0 asks for the one of the present amax."""

    probe: Tensor
    """() float32, a leaf that requires a gradient."""


def cast_input(x: Tensor, scaling: ScalingKind, delayed: Tensor, learning: bool) -> Input:
    """Cast an input (…, K) once for all layers that read it.

    Args:
        delayed: () float32, its scale; 0 asks for the one of the present amax.
        learning: whether there will be a backward pass.
    """
    x_MK = x.detach().flatten(0, -2)
    now, amax = cast_last(x_MK, E4M3, scaling, delayed)
    if scaling is ScalingKind.TENSOR or not learning:
        return Input(now, None, amax)
    return Input(now, cast_first(x_MK, E4M3, scaling), amax)


def linear(
    x: Tensor,
    read: Input,
    weight: Weight,
    gradient: OutputGradient,
    scaling: ScalingKind,
    deferred: Deferred | None = None,
) -> Tensor:
    """x (…, K) → y (…, N), bfloat16. The gradient of the weight goes to its handle, in the handle's dtype.

    Args:
        deferred: where the dW product is put aside; it is made in the backward pass when left out.
    """
    y: Tensor = _Linear.apply(  # type: ignore[no-untyped-call]
        x,
        weight.handle if deferred is None else weight.handle.detach(),
        gradient.probe,
        *read.now,
        *(read.later or (None, None)),
        weight.codes,
        weight.scale,
        None if weight.codes.dtype is E4M3 else weight.cast_scale,
        gradient.delayed,
        scaling,
        None if deferred is None else partial(deferred.add, weight.handle),
    )
    return y


class _Linear(Function):
    @staticmethod
    def forward(
        x: Tensor,
        handle: Tensor,
        probe: Tensor,
        now_codes: Tensor,
        now_scale: Tensor,
        later_codes: Tensor | None,
        later_scale: Tensor | None,
        codes: Tensor,
        scale: Tensor,
        cast_scale: Tensor | None,
        delayed: Tensor,
        scaling: ScalingKind,
        put_aside: Callable[[Work], None] | None,
    ) -> Tensor:
        weight_NK = cast_weight(codes, scale, cast_scale, scaling)
        y_MN = multiply(Operand(now_codes, now_scale), weight_NK, torch.bfloat16, fast_accumulation=True)
        return y_MN.view(*x.shape[:-1], -1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *given, scaling, put_aside = inputs
        x, handle, _, *now, later_codes, later_scale, codes, scale, cast_scale, delayed = given
        later = now if later_codes is None else (later_codes, later_scale)
        ctx.save_for_backward(*later, codes, scale, cast_scale, delayed)
        ctx.scaling, ctx.gradient_dtype, ctx.shape, ctx.dtype = scaling, handle.dtype, x.shape, x.dtype
        ctx.put_aside = put_aside

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        later_codes, later_scale, codes, scale, cast_scale, delayed = ctx.saved_tensors
        scaling: ScalingKind = ctx.scaling
        later = Operand(later_codes, later_scale)
        dy_MN = dy.reshape(-1, dy.shape[-1])
        gradient_MN, amax = cast_last(dy_MN, E5M2, scaling, delayed)
        if scaling is ScalingKind.TENSOR:
            gradient_NM, x_KM = turned(gradient_MN), turned(later)
        else:
            gradient_NM, x_KM = cast_first(dy_MN, E5M2, scaling), later
        weight_KN = turn_weight(codes, scale, cast_scale, scaling)
        dx = multiply(gradient_MN, weight_KN, ctx.dtype).view(ctx.shape)
        weight_gradient = partial(multiply, gradient_NM, x_KM, ctx.gradient_dtype)
        if ctx.put_aside is None:
            return dx, weight_gradient(), amax, *[None] * 10
        ctx.put_aside(weight_gradient)
        return dx, None, amax, *[None] * 10


def cast_weight(codes_NK: Tensor, scale: Tensor, cast_scale: Tensor | None, scaling: ScalingKind) -> Operand:
    """W for y. Its own scale needs no look at the numbers: who moves them keeps ``cast_scale``."""
    if cast_scale is None:
        assert scaling is ScalingKind.TENSOR and codes_NK.dtype is E4M3
        return Operand(codes_NK, scale)
    if scaling is ScalingKind.TENSOR:
        return Operand(cast_(codes_NK.float() * (scale / cast_scale), E4M3), cast_scale)
    real_NK = widen(codes_NK, torch.float32) * scale
    return (
        by_row(real_NK, E4M3) if scaling is ScalingKind.ROW else by_block(real_NK, E4M3, rows=128)
    ).operand


def turn_weight(codes_NK: Tensor, scale: Tensor, cast_scale: Tensor | None, scaling: ScalingKind) -> Operand:
    """Wᵀ for dx: square blocks and whole tensors may be turned, rows are cast anew along the other dim."""
    if scaling is ScalingKind.ROW:
        return cast_first(widen(codes_NK, torch.float32) * scale, E4M3, scaling)
    return turned(cast_weight(codes_NK, scale, cast_scale, scaling))
