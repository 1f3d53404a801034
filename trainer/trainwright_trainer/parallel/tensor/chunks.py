"""Gathers and scatters by chunks of the tokens: what one chunk needs or gives travels while another is multiplied.

    owns    what ``layers`` leaves each rank
    moves   gather    that of chunk s + 1 is under way while chunk s is multiplied
            scatter   that of chunk s is under way while chunk s + 1 is multiplied; in a backward pass the last one's too, while
                      weights get their gradients

A chunk is the same stretch of each rank's part of the tokens. What comes of it is put where its tokens belong, and weights get
their gradients from the whole: only that products have fewer rows is new. What FP8 layers multiply travels as codes, in the
backward pass too, where ``tokens`` sends bfloat16.

Nothing is under way outside of autograd's functions, which compute without gradients: gloo's thread has the modes of who
started it, and would make history of a tensor that another thread is using.

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

from trainwright_trainer.fp8.products import Operand
from trainwright_trainer.mesh import Axis, Coming
from trainwright_trainer.parallel.tensor.layer_products import ByRows, LayerProducts, products_of


class Cut(NamedTuple):
    """How tokens are cut: over ranks, and each rank's in chunks, which have as many each."""

    axis: Axis
    chunks: int


def gathered_products(part_BTK: Tensor, layers: Sequence[nn.Module], cut: Cut) -> list[Tensor]:
    """What each of ``layers`` makes of the tokens of all ranks: (B, T/t, K) → (B, T, N) of each."""
    dtype = _product_dtype(part_BTK)
    products = [products_of(layer, dtype) for layer in layers]
    leaves = [leaf for one in products for leaf in one.leaves()]
    outs = _Gathered.apply(cut, products, part_BTK.to(dtype).flatten(0, 1), *leaves)  # type: ignore[no-untyped-call]
    return [out_MN.unflatten(0, (part_BTK.shape[0], -1)) for out_MN in outs]


def scattered_product(whole_BTK: Tensor, layer: nn.Module, cut: Cut) -> Tensor:
    """What ``layer`` makes of all tokens, summed over the ranks, of which each gets its part: (B, T, K) → (B, T/t, N)."""
    dtype = _product_dtype(whole_BTK)
    products = products_of(layer, dtype)
    part_MN: Tensor = _Scattered.apply(  # type: ignore[no-untyped-call]
        cut, products, whole_BTK.to(dtype).flatten(0, 1), *products.leaves()
    )
    part_BTN: Tensor = torch.unflatten(part_MN, 0, (whole_BTK.shape[0], -1))
    return part_BTN


class _Gathered(Function):
    @staticmethod
    def forward(
        ctx: Any, cut: Cut, products: list[LayerProducts], part_MK: Tensor, *leaves: Any
    ) -> tuple[Tensor, ...]:
        weights = leaves[::2]
        by_rows = [one.forward(weight) for one, weight in zip(products, weights, strict=True)]
        x, outs = _gather(products[0].read(part_MK), by_rows, cut)
        ctx.cut, ctx.products = cut, products
        ctx.save_for_backward(*x, *weights)
        return tuple(outs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *given_MN: Tensor) -> tuple[Any, ...]:
        codes, scale, *weights = ctx.saved_tensors
        products: list[LayerProducts] = ctx.products
        by_rows = [one.backward(weight) for one, weight in zip(products, weights, strict=True)]
        read = [one.read_gradient(dy_MN, None) for one, dy_MN in zip(products, given_MN, strict=True)]
        coming = _scatter([dy for dy, _ in read], by_rows, ctx.cut)
        gradients: list[Tensor | None] = []
        for one, (dy, amax) in zip(products, read, strict=True):
            gradients += one.weight_gradient(dy, Operand(codes, scale)), amax
        return None, None, _arrived(coming, ctx.cut), *gradients


class _Scattered(Function):
    @staticmethod
    def forward(
        ctx: Any, cut: Cut, products: LayerProducts, whole_MK: Tensor, weight_NK: Tensor, _: Tensor | None
    ) -> Tensor:
        x = products.read(whole_MK)
        coming = _scatter([x], [products.forward(weight_NK)], cut)
        ctx.cut, ctx.products = cut, products
        ctx.save_for_backward(*x, weight_NK)
        return _arrived(coming, cut)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, part_MN: Tensor) -> tuple[Any, ...]:
        codes, scale, weight_NK = ctx.saved_tensors
        products: LayerProducts = ctx.products
        part, amax = products.read_gradient(part_MN, ctx.cut.axis)
        dy, (dx_MK,) = _gather(part, [products.backward(weight_NK)], ctx.cut)
        return None, None, dx_MK, products.weight_gradient(dy, Operand(codes, scale)), amax


def _gather(part: Operand, multiplied: Sequence[ByRows], cut: Cut) -> tuple[Operand, list[Tensor]]:
    """The rows of all ranks, and what each of ``multiplied`` makes of them."""
    wholes_RSCF: list[Tensor] = []
    for chunk, codes_MK in enumerate(_arriving(part.codes, cut)):
        rows = Operand(codes_MK, part.scale)
        made = [codes_MK, *(by_rows(rows) for by_rows in multiplied)]
        wholes_RSCF = wholes_RSCF or [
            one.new_empty(cut.axis.ranks, cut.chunks, len(one) // cut.axis.ranks, one.shape[1])
            for one in made
        ]
        for whole_RSCF, one in zip(wholes_RSCF, made, strict=True):
            whole_RSCF[:, chunk] = torch.unflatten(one, 0, (cut.axis.ranks, -1))
    codes, *outs = (whole_RSCF.flatten(0, 2) for whole_RSCF in wholes_RSCF)
    return Operand(codes, part.scale), outs


def _arriving(part_MK: Tensor, cut: Cut) -> Iterator[Tensor]:
    """Chunk by chunk, of all ranks; the next one is sent before one is waited for."""
    sent, *waiting = part_MK.contiguous().chunk(cut.chunks)
    coming = cut.axis.start_gather(sent)
    for chunk in waiting:
        now, coming = coming, cut.axis.start_gather(chunk)
        yield cut.axis.arrived(now)
    yield cut.axis.arrived(coming)


def _scatter(given: Sequence[Operand], multiplied: Sequence[ByRows], cut: Cut) -> list[Coming]:
    """Chunk by chunk, this rank's part of the sum over ranks of all that ``multiplied`` make of ``given``."""
    coming = []
    for chunk in range(cut.chunks):
        summands_MN = [
            by_rows(Operand(_rows(one.codes, chunk, cut), one.scale))
            for one, by_rows in zip(given, multiplied, strict=True)
        ]
        # autograd adds what came of the last layer first
        coming.append(cut.axis.start_scatter_sum(reduce(add, reversed(summands_MN))))
    return coming


def _rows(whole_MF: Tensor, chunk: int, cut: Cut) -> Tensor:
    whole_RSCF: Tensor = torch.unflatten(whole_MF, 0, (cut.axis.ranks, cut.chunks, -1))
    return whole_RSCF[:, chunk].flatten(0, 1)


def _arrived(coming: list[Coming], cut: Cut) -> Tensor:
    return torch.cat([cut.axis.arrived(one) for one in coming])


def _product_dtype(x: Tensor) -> torch.dtype:
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
