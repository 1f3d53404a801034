"""Tokens that are sent in chunks: one chunk is sent while another is multiplied (``Tokens`` of ``linear.linear_function``).

    owns    what ``layers`` leaves each rank
    moves   gather    chunk s + 1 is in flight while chunk s is multiplied
            scatter   chunk s is in flight while chunk s + 1 is multiplied; in a backward pass the last chunk also
                      while weight gradients are computed

A chunk is the same range of each rank's tokens. Its results are written where its tokens belong, and weight gradients
are computed from all tokens: the only difference is that matmuls have fewer rows. Inputs of FP8 layers are sent as
codes, also in the backward pass, where ``sequence_parallel`` sends bfloat16.

Nothing is in flight outside autograd functions, which compute without gradients: gloo's thread inherits the
autograd mode of the thread that started it, and would record history for a tensor that another thread is
using.

    R ranks   S chunks   C tokens of a chunk on one rank   M = R·S·C all tokens   K features in   N features out   F either
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from trainwright_trainer.distributed.axis import Axis, PendingTensor
from trainwright_trainer.fp8.compute.linear import FP8Linear
from trainwright_trainer.linear.dense import DenseLinear, DenseMatmuls, matmul_dtype
from trainwright_trainer.linear.linear_function import (
    Cast,
    Factor,
    Matmuls,
    Matrix,
    RowMatmul,
    hand_weight_gradient,
    linear,
    summed,
)
from trainwright_trainer.parallel.tensor.fp8_gather import GatheringInputCast


class Chunking(NamedTuple):
    """How tokens are split: over ranks, and each rank's tokens into equal chunks."""

    axis: Axis
    chunks: int


def all_gather_matmul(part_BTK: Tensor, layers: Sequence[nn.Module], chunking: Chunking) -> list[Tensor]:
    """Gather the tokens of all ranks and apply each of ``layers``: (B, T/t, K) → (B, T, N) for each."""
    part_BTK = part_BTK.to(matmul_dtype(part_BTK))
    matmuls = [_matmuls_of(layer, part_BTK.dtype) for layer in layers]
    return linear(part_BTK, _cast_input(part_BTK, layers[0]), matmuls, _GatheredTokens(chunking))


def matmul_reduce_scatter(full_BTK: Tensor, layer: nn.Module, chunking: Chunking) -> Tensor:
    """Apply ``layer`` to all tokens and reduce-scatter the result over the ranks: (B, T, K) → (B, T/t, N)."""
    full_BTK = full_BTK.to(matmul_dtype(full_BTK))
    matmuls = [_matmuls_of(layer, full_BTK.dtype)]
    (part_BTN,) = linear(full_BTK, _cast_input(full_BTK, layer), matmuls, _ScatteredTokens(chunking))
    return part_BTN


def matmuls_reduce_scatter(
    fulls_BTK: Sequence[Tensor], layers: Sequence[nn.Module], chunking: Chunking
) -> Tensor:
    """Apply each of ``layers`` to its input and reduce-scatter the sum of the results: (B, T, K) each → (B, T/t, N)."""
    inputs = [full_BTK.to(matmul_dtype(full_BTK)) for full_BTK in fulls_BTK]
    casts = [_cast_input(x_BTK, layer) for x_BTK, layer in zip(inputs, layers, strict=True)]
    matmuls = [_matmuls_of(layer, x_BTK.dtype) for x_BTK, layer in zip(inputs, layers, strict=True)]
    leaves = [leaf for each in matmuls for leaf in (each.leaf(), each.probe)]
    flat = [x_BTK.flatten(0, -2) for x_BTK in inputs]
    part_MN: Tensor = SummedMatmuls.apply(chunking, matmuls, casts, *flat, *leaves)
    return part_MN.view(*inputs[0].shape[:-2], -1, part_MN.shape[1])


class SummedMatmuls(Function):
    """``matmuls_reduce_scatter`` as a node of the autograd graph.

    The gradient of a sum is that of each summand. So dy is cast and gathered once, as the first layer casts it. All
    layers have had the same dy in every step, so they have the same amaxes and the same delayed scale.
    """

    @staticmethod
    def forward(
        ctx: Any, chunking: Chunking, layers: Sequence[Matmuls], casts: Sequence[Cast], *given: Any
    ) -> Tensor:
        leaves = given[len(layers) :: 2]
        weights = [layer.stored(leaf) for layer, leaf in zip(layers, leaves, strict=True)]
        matmuls = [layer.output(weight) for layer, weight in zip(layers, weights, strict=True)]
        part_MN = _wait_all(_multiply_and_scatter([cast.rows for cast in casts], matmuls, chunking), chunking)
        ctx.chunking, ctx.layers = chunking, layers
        factors = [cast.factor for cast in casts]
        ctx.transposed = [factor.transposed for factor in factors]
        saved = [*(factor.matrix for factor in factors), *weights]
        ctx.sizes = [len(tensors) for tensors in saved]
        ctx.save_for_backward(*(tensor for tensors in saved for tensor in tensors))
        return part_MN

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy_MN: Tensor) -> tuple[Tensor | None, ...]:
        layers: Sequence[Matmuls] = ctx.layers
        saved = iter(ctx.saved_tensors)
        matrices = [tuple(islice(saved, size)) for size in ctx.sizes]
        factors = [Factor(*each) for each in zip(matrices, ctx.transposed, strict=False)]
        weights = matrices[len(layers) :]
        cast = layers[0].cast_output_gradient(dy_MN, ctx.chunking.axis)
        matmuls = [layer.input_gradient(weight) for layer, weight in zip(layers, weights, strict=True)]
        dy, inputs = _gather_and_multiply(cast.rows, matmuls, ctx.chunking)
        gradients: list[Tensor | None] = []
        for layer, x in zip(layers, factors, strict=True):
            gradients += [hand_weight_gradient(layer, dy, x), cast.amax]
        return None, None, None, *inputs, *gradients


class _GatheredTokens(NamedTuple):
    """Each rank has a part of x and dx, and all of y and dy."""

    chunking: Chunking
    output_axis: None = None

    def forward(self, x: Cast, matmuls: Sequence[RowMatmul]) -> tuple[Factor, list[Tensor]]:
        return _gather_and_multiply(x.rows, matmuls, self.chunking)

    def backward(
        self, dys: Sequence[Cast], matmuls: Sequence[RowMatmul]
    ) -> tuple[list[Factor], Callable[[], Tensor]]:
        pending = _multiply_and_scatter([dy.rows for dy in dys], matmuls, self.chunking)
        return [dy.factor for dy in dys], partial(_wait_all, pending, self.chunking)


class _ScatteredTokens(NamedTuple):
    """Each rank has all of x and dx, and a part of y, which is summed over the ranks, and of dy."""

    chunking: Chunking

    @property
    def output_axis(self) -> Axis:
        return self.chunking.axis

    def forward(self, x: Cast, matmuls: Sequence[RowMatmul]) -> tuple[Factor, list[Tensor]]:
        pending = _multiply_and_scatter([x.rows], matmuls, self.chunking)
        return x.factor, [_wait_all(pending, self.chunking)]

    def backward(
        self, dys: Sequence[Cast], matmuls: Sequence[RowMatmul]
    ) -> tuple[list[Factor], Callable[[], Tensor]]:
        (part,) = dys
        dy, (dx_MK,) = _gather_and_multiply(part.rows, matmuls, self.chunking)
        return [dy], lambda: dx_MK


def _gather_and_multiply(
    part: Matrix, matmuls: Sequence[RowMatmul], chunking: Chunking
) -> tuple[Factor, list[Tensor]]:
    """Gather the rows of all ranks and apply each of ``matmuls`` to them."""
    part_MF, *scale = part
    gathered_RSCF: list[Tensor] = []
    for chunk, rows_MF in enumerate(_gathered_chunks(part_MF, chunking)):
        results = [rows_MF, *(matmul((rows_MF, *scale)) for matmul in matmuls)]
        gathered_RSCF = gathered_RSCF or [
            result.new_empty(
                chunking.axis.ranks, chunking.chunks, len(result) // chunking.axis.ranks, result.shape[1]
            )
            for result in results
        ]
        for full_RSCF, one in zip(gathered_RSCF, results, strict=True):
            full_RSCF[:, chunk] = torch.unflatten(one, 0, (chunking.axis.ranks, -1))
    full_MF, *outs = (full_RSCF.flatten(0, 2) for full_RSCF in gathered_RSCF)
    return Factor((full_MF, *scale)), outs


def _gathered_chunks(part_MK: Tensor, chunking: Chunking) -> Iterator[Tensor]:
    """Yield the gathered chunks; the next chunk is sent before the current one is waited for."""
    sent, *waiting = part_MK.contiguous().chunk(chunking.chunks)
    pending = chunking.axis.all_gather_async(sent)
    for chunk in waiting:
        now, pending = pending, chunking.axis.all_gather_async(chunk)
        yield chunking.axis.wait_tensor(now)
    yield chunking.axis.wait_tensor(pending)


def _multiply_and_scatter(
    given: Sequence[Matrix], matmuls: Sequence[RowMatmul], chunking: Chunking
) -> list[PendingTensor]:
    """Multiply chunk by chunk and start to reduce-scatter the sum of all results."""
    pending = []
    for chunk in range(chunking.chunks):
        sum_MN = summed(
            matmul((_rows(full_MF, chunk, chunking), *scale))
            for (full_MF, *scale), matmul in zip(given, matmuls, strict=True)
        )
        pending.append(chunking.axis.reduce_scatter_async(sum_MN))
    return pending


def _rows(full_MF: Tensor, chunk: int, chunking: Chunking) -> Tensor:
    full_RSCF: Tensor = torch.unflatten(full_MF, 0, (chunking.axis.ranks, chunking.chunks, -1))
    return full_RSCF[:, chunk].flatten(0, 1)


def _wait_all(pending: list[PendingTensor], chunking: Chunking) -> Tensor:
    return torch.cat([chunking.axis.wait_tensor(item) for item in pending])


def _matmuls_of(layer: nn.Module, dtype: torch.dtype) -> Matmuls:
    """The matmuls of ``layer``; in ``dtype`` unless it is an FP8 layer."""
    if isinstance(layer, FP8Linear):
        return layer.matmuls()
    if isinstance(layer, DenseLinear):
        return layer.matmuls(dtype)
    weight = layer.weight
    assert isinstance(weight, Tensor)
    return DenseMatmuls(weight, dtype)


@torch.no_grad()
def _cast_input(x_BTK: Tensor, layer: nn.Module) -> Cast:
    """``x_BTK``, or this rank's part of an input that is gathered, cast for ``layer``."""
    x_MK = x_BTK.flatten(0, 1)
    if not isinstance(layer, FP8Linear):
        return Cast((x_MK,))
    cast = layer.input_cast
    return cast.cast_local(x_MK) if isinstance(cast, GatheringInputCast) else cast(x_MK)
