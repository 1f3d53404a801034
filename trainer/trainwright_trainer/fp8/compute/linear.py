"""A linear layer with all three matmuls in FP8 (FP8-LM, section 2; formats of Micikevicius et al. 2022).

    y  = x · Wᵀ      E4M3 · E4M3, contracted over K, with fast accumulation
    dx = dy · W      E5M2 · E4M3, contracted over N
    dW = dyᵀ · x     E5M2 · E4M3, contracted over M

    M tokens   K features in   N features out

Each operand is cast for its matmul. With one scale per tensor the codes of one matmul serve the next,
transposed; scales by row or block differ from matmul to matmul, and so do the codes.

Only x is saved for the backward pass, as the dW matmul needs it, one byte per element. W is cast again from
its stored codes, unless its operands are kept (``Weight.operands``). Everything is a function of its inputs:
the amax of dy is returned as the gradient of ``probe``, a scalar that takes no part in the computation.
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
from trainwright_trainer.fp8.compute.formats import E4M3, E5M2, cast_, widen
from trainwright_trainer.fp8.compute.matmul import (
    Operand,
    cast_both_ways,
    cast_for_first_dim,
    cast_for_last_dim,
    cast_per_block,
    cast_per_row,
    scaled_matmul,
    transposed,
)
from trainwright_trainer.fp8.compute.weight import Weight
from trainwright_trainer.runtime.deferred_weight_gradients import DeferredWeightGradients, GradientFunction


class CastInput(NamedTuple):
    """An input cast for its matmuls; layers that read the same input share it."""

    for_output: Operand
    """(M, K), for y."""

    for_weight_grad: Operand | None
    """(K, M), for dW; None if ``for_output`` is transposed for it in the backward pass, or without one."""

    amax: Tensor
    """() float32."""


class OutputGradientCast(NamedTuple):
    """How the gradient of an output is cast, and where its amax goes."""

    delayed: Tensor
    """() float32: its scale; 0 means that of the current amax."""

    probe: Tensor
    """() float32, a leaf that requires a gradient."""


def cast_input(
    x: Tensor, scaling: ScalingKind, delayed: Tensor, learning: bool, transpose_now: bool = False
) -> CastInput:
    """Cast an input (…, K) once for all layers that read it.

    Args:
        delayed: () float32, its scale; 0 means that of the current amax.
        learning: whether there will be a backward pass.
        transpose_now: on a GPU, save the codes transposed. It costs no pass (``cast_transpose``), while the backward pass
            could only transpose codes that it saved, or, compiled, compute the input again. For scaling by tensor.
    """
    x_MK = x.detach().flatten(0, -2)
    if scaling is ScalingKind.TENSOR and learning and transpose_now and x.device.type == "cuda":
        return CastInput(*cast_both_ways(x_MK, E4M3, delayed))
    for_output, amax = cast_for_last_dim(x_MK, E4M3, scaling, delayed)
    if scaling is ScalingKind.TENSOR or not learning:
        return CastInput(for_output, None, amax)
    return CastInput(for_output, cast_for_first_dim(x_MK, E4M3, scaling), amax)


def linear(
    x: Tensor,
    read: CastInput,
    weight: Weight,
    gradient: OutputGradientCast,
    scaling: ScalingKind,
    deferred: DeferredWeightGradients | None = None,
) -> Tensor:
    """x (…, K) → y (…, N), bfloat16. The gradient of the weight goes to its handle, in the handle's dtype.

    Args:
        deferred: takes the dW matmul; by default it runs in the backward pass.
    """
    y: Tensor = _Linear.apply(
        x,
        weight.handle if deferred is None else weight.handle.detach(),
        gradient.probe,
        *read.for_output,
        *_second_cast(read),
        *weight.stored(),
        gradient.delayed,
        scaling,
        None if deferred is None else partial(deferred.add, weight.handle),
    )
    return y


def _second_cast(read: CastInput) -> tuple[Tensor | None, Tensor | None]:
    """Codes and scale for dW. A scale that both casts have is passed once: the compiler refuses a tensor given twice."""
    if read.for_weight_grad is None:
        return None, None
    codes, scale = read.for_weight_grad
    return codes, None if scale is read.for_output.scale else scale


class _Linear(Function):
    @staticmethod
    def forward(
        x: Tensor,
        handle: Tensor,
        probe: Tensor,
        output_codes: Tensor,
        output_scale: Tensor,
        grad_codes: Tensor | None,
        grad_scale: Tensor | None,
        codes: Tensor,
        scale: Tensor,
        cast_scale: Tensor | None,
        transposed_codes: Tensor | None,
        delayed: Tensor,
        scaling: ScalingKind,
        defer: Callable[[GradientFunction], None] | None,
    ) -> Tensor:
        weight_NK = cast_weight(codes, scale, cast_scale, scaling)
        y_MN = scaled_matmul(
            Operand(output_codes, output_scale), weight_NK, torch.bfloat16, fast_accumulation=True
        )
        return y_MN.view(*x.shape[:-1], -1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *given, scaling, defer = inputs
        x, handle, _, *for_output, grad_codes, grad_scale, codes, scale, cast_scale, codes_KN, delayed = given
        ctx.transposed = grad_codes is not None
        for_weight_grad = for_output
        if ctx.transposed:
            for_weight_grad = [grad_codes, for_output[1] if grad_scale is None else grad_scale]
        ctx.save_for_backward(
            *for_weight_grad, codes if codes_KN is None else codes_KN, scale, cast_scale, delayed
        )
        ctx.weight_transposed = codes_KN is not None
        ctx.scaling, ctx.gradient_dtype, ctx.shape, ctx.dtype = scaling, handle.dtype, x.shape, x.dtype
        ctx.defer = defer

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        grad_codes, grad_scale, codes, scale, cast_scale, delayed = ctx.saved_tensors
        scaling: ScalingKind = ctx.scaling
        for_weight_grad = Operand(grad_codes, grad_scale)
        dy_MN = dy.reshape(-1, dy.shape[-1])
        x_KM = for_weight_grad if ctx.transposed else transposed(for_weight_grad)
        if scaling is ScalingKind.TENSOR:
            gradient_MN, gradient_NM, amax = cast_both_ways(dy_MN, E5M2, delayed)
        else:
            gradient_MN, amax = cast_for_last_dim(dy_MN, E5M2, scaling, delayed)
            gradient_NM = cast_for_first_dim(dy_MN, E5M2, scaling)
        if ctx.weight_transposed:
            weight_KN = Operand(codes, scale)
        else:
            weight_KN = cast_transposed_weight(codes, scale, cast_scale, scaling)
        dx = scaled_matmul(gradient_MN, weight_KN, ctx.dtype).view(ctx.shape)
        weight_gradient = partial(scaled_matmul, gradient_NM, x_KM, ctx.gradient_dtype)
        if ctx.defer is None:
            return dx, weight_gradient(), amax, *[None] * 11
        ctx.defer(weight_gradient)
        return dx, None, amax, *[None] * 11


def cast_weight(codes_NK: Tensor, scale: Tensor, cast_scale: Tensor | None, scaling: ScalingKind) -> Operand:
    """W for y. Its scale needs no pass over the weight: the optimizer keeps ``cast_scale``."""
    if cast_scale is None:
        assert scaling is ScalingKind.TENSOR and codes_NK.dtype is E4M3
        return Operand(codes_NK, scale)
    if scaling is ScalingKind.TENSOR:
        return Operand(cast_(codes_NK.float() * (scale / cast_scale), E4M3), cast_scale)
    real_NK = widen(codes_NK, torch.float32) * scale
    return (
        cast_per_row(real_NK, E4M3) if scaling is ScalingKind.ROW else cast_per_block(real_NK, E4M3, rows=128)
    ).operand


def cast_transposed_weight(
    codes_NK: Tensor, scale: Tensor, cast_scale: Tensor | None, scaling: ScalingKind
) -> Operand:
    """Wᵀ for dx: scales by tensor or square block allow a transpose, rows are cast again along the other dim."""
    if scaling is ScalingKind.ROW:
        return cast_for_first_dim(widen(codes_NK, torch.float32) * scale, E4M3, scaling)
    return transposed(cast_weight(codes_NK, scale, cast_scale, scaling))
