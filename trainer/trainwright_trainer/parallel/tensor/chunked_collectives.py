"""Chunked gathers and scatters of tokens: one chunk is sent while another is multiplied.

    owns    what ``layers`` leaves each rank
    moves   gather    chunk s + 1 is in flight while chunk s is multiplied
            scatter   chunk s is in flight while chunk s + 1 is multiplied; in a backward pass the last chunk also
                      while weight gradients are computed

A chunk is the same range of each rank's tokens. Its results are written where its tokens belong, and weight
gradients are computed from all tokens: the only difference is that matmuls have fewer rows. Inputs of FP8
layers travel as codes, in the backward pass too, where ``sequence_parallel`` sends bfloat16.

Nothing is in flight outside autograd functions, which compute without gradients: gloo's thread inherits the
autograd mode of the thread that started it, and would record history for a tensor that another thread is
using.

    R ranks   S chunks   C tokens of a chunk on one rank   M = R·S·C all tokens   K features in   N features out
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from trainwright_trainer.distributed.axis import Axis, PendingTensor
from trainwright_trainer.fp8.compute.matmul import Operand
from trainwright_trainer.parallel.tensor.layer_matmuls import LayerMatmuls, RowMatmul, matmuls_of


class Chunking(NamedTuple):
    """How tokens are split: over ranks, and each rank's tokens into equal chunks."""

    axis: Axis
    chunks: int


def all_gather_matmul(part_BTK: Tensor, layers: Sequence[nn.Module], chunking: Chunking) -> list[Tensor]:
    """Gather the tokens of all ranks and apply each of ``layers``: (B, T/t, K) → (B, T, N) for each."""
    dtype = _matmul_dtype(part_BTK)
    matmuls = [matmuls_of(layer, dtype) for layer in layers]
    leaves = [leaf for matmul in matmuls for leaf in matmul.leaves()]
    outs = _AllGatherMatmul.apply(chunking, matmuls, part_BTK.to(dtype).flatten(0, 1), *leaves)
    return [out_MN.unflatten(0, (part_BTK.shape[0], -1)) for out_MN in outs]


def matmul_reduce_scatter(full_BTK: Tensor, layer: nn.Module, chunking: Chunking) -> Tensor:
    """Apply ``layer`` to all tokens and reduce-scatter the result over the ranks: (B, T, K) → (B, T/t, N)."""
    dtype = _matmul_dtype(full_BTK)
    matmuls = matmuls_of(layer, dtype)
    part_MN: Tensor = _MatmulReduceScatter.apply(
        chunking, matmuls, full_BTK.to(dtype).flatten(0, 1), *matmuls.leaves()
    )
    part_BTN: Tensor = torch.unflatten(part_MN, 0, (full_BTK.shape[0], -1))
    return part_BTN


class _AllGatherMatmul(Function):
    @staticmethod
    def forward(
        ctx: Any, chunking: Chunking, matmuls: list[LayerMatmuls], part_MK: Tensor, *leaves: Any
    ) -> tuple[Tensor, ...]:
        weights = leaves[::2]
        row_matmul = [one.forward(weight) for one, weight in zip(matmuls, weights, strict=True)]
        x, outs = _gather_and_multiply(matmuls[0].cast_input(part_MK), row_matmul, chunking)
        ctx.chunking, ctx.matmuls = chunking, matmuls
        ctx.save_for_backward(*x, *weights)
        return tuple(outs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *given_MN: Tensor) -> tuple[Any, ...]:
        codes, scale, *weights = ctx.saved_tensors
        matmuls: list[LayerMatmuls] = ctx.matmuls
        row_matmul = [one.backward(weight) for one, weight in zip(matmuls, weights, strict=True)]
        casts = [one.cast_gradient(dy_MN, None) for one, dy_MN in zip(matmuls, given_MN, strict=True)]
        pending = _multiply_and_scatter([dy for dy, _ in casts], row_matmul, ctx.chunking)
        gradients: list[Tensor | None] = []
        for one, (dy, amax) in zip(matmuls, casts, strict=True):
            gradients += one.weight_gradient(dy, Operand(codes, scale)), amax
        return None, None, _wait_all(pending, ctx.chunking), *gradients


class _MatmulReduceScatter(Function):
    @staticmethod
    def forward(
        ctx: Any,
        chunking: Chunking,
        matmuls: LayerMatmuls,
        full_MK: Tensor,
        weight_NK: Tensor,
        _: Tensor | None,
    ) -> Tensor:
        x = matmuls.cast_input(full_MK)
        pending = _multiply_and_scatter([x], [matmuls.forward(weight_NK)], chunking)
        ctx.chunking, ctx.matmuls = chunking, matmuls
        ctx.save_for_backward(*x, weight_NK)
        return _wait_all(pending, chunking)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, part_MN: Tensor) -> tuple[Any, ...]:
        codes, scale, weight_NK = ctx.saved_tensors
        matmuls: LayerMatmuls = ctx.matmuls
        part, amax = matmuls.cast_gradient(part_MN, ctx.chunking.axis)
        dy, (dx_MK,) = _gather_and_multiply(part, [matmuls.backward(weight_NK)], ctx.chunking)
        return None, None, dx_MK, matmuls.weight_gradient(dy, Operand(codes, scale)), amax


def _gather_and_multiply(
    part: Operand, multiplied: Sequence[RowMatmul], chunking: Chunking
) -> tuple[Operand, list[Tensor]]:
    """Gather the rows of all ranks and apply each of ``multiplied`` to them."""
    gathered_RSCF: list[Tensor] = []
    for chunk, codes_MK in enumerate(_gathered_chunks(part.codes, chunking)):
        rows = Operand(codes_MK, part.scale)
        results = [codes_MK, *(row_matmul(rows) for row_matmul in multiplied)]
        gathered_RSCF = gathered_RSCF or [
            result.new_empty(
                chunking.axis.ranks, chunking.chunks, len(result) // chunking.axis.ranks, result.shape[1]
            )
            for result in results
        ]
        for full_RSCF, one in zip(gathered_RSCF, results, strict=True):
            full_RSCF[:, chunk] = torch.unflatten(one, 0, (chunking.axis.ranks, -1))
    codes, *outs = (full_RSCF.flatten(0, 2) for full_RSCF in gathered_RSCF)
    return Operand(codes, part.scale), outs


def _gathered_chunks(part_MK: Tensor, chunking: Chunking) -> Iterator[Tensor]:
    """Yield the gathered chunks; the next chunk is sent before the current one is waited for."""
    sent, *waiting = part_MK.contiguous().chunk(chunking.chunks)
    pending = chunking.axis.all_gather_async(sent)
    for chunk in waiting:
        now, pending = pending, chunking.axis.all_gather_async(chunk)
        yield chunking.axis.wait_tensor(now)
    yield chunking.axis.wait_tensor(pending)


def _multiply_and_scatter(
    given: Sequence[Operand], multiplied: Sequence[RowMatmul], chunking: Chunking
) -> list[PendingTensor]:
    """Multiply chunk by chunk and start to reduce-scatter the sum of all results."""
    pending = []
    for chunk in range(chunking.chunks):
        summands_MN = [
            row_matmul(Operand(_rows(one.codes, chunk, chunking), one.scale))
            for one, row_matmul in zip(given, multiplied, strict=True)
        ]
        # autograd adds the last layer's gradient first
        pending.append(chunking.axis.reduce_scatter_async(reduce(add, reversed(summands_MN))))
    return pending


def _rows(full_MF: Tensor, chunk: int, chunking: Chunking) -> Tensor:
    full_RSCF: Tensor = torch.unflatten(full_MF, 0, (chunking.axis.ranks, chunking.chunks, -1))
    return full_RSCF[:, chunk].flatten(0, 1)


def _wait_all(pending: list[PendingTensor], chunking: Chunking) -> Tensor:
    return torch.cat([chunking.axis.wait_tensor(item) for item in pending])


def _matmul_dtype(x: Tensor) -> torch.dtype:
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
