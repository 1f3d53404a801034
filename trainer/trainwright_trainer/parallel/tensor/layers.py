"""Tensor parallelism with sequence parallelism: each rank owns a part of every matrix, and between products of the tokens.

    owns    heads             rows of query, key and value, columns of output
            hidden features   rows of gate and up, columns of down
            vocabulary        rows of embedding and head (``vocabulary``)
            tokens            a part of the residual stream (``tokens``); norms work on it, and are whole everywhere
    moves   forward     twice a block: the normed part is gathered before the first products, and what comes out of the
                        last, a summand of each rank, is summed and scattered
            backward    the same with gathering and summing exchanged; the gradient of each norm's weight is summed

So all arithmetic and all that is kept of the residual stream is divided by the number of ranks (Shoeybi et al. 2019;
Korthikanti et al. 2022). Query heads and the heads of keys and values that they share lie on the same rank.
Where FP8 products follow, what is gathered are their codes (``codes``). A product waits for its gather, unless chunks of
the tokens are asked for (``chunks``).

It comes in two steps. ``cut_weights`` makes weights small while they take no memory yet. ``share_work`` lets modules
speak with the other ranks, when their layers are those that they are trained with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm, silu

from trainwright_trainer.fp8.modules import FP8Linear, HighEmbedding, HighNorm
from trainwright_trainer.mesh import Axis
from trainwright_trainer.model.attention import Attention
from trainwright_trainer.model.feed_forward import FeedForward
from trainwright_trainer.parallel.tensor.chunks import Cut, gathered_products, scattered_product
from trainwright_trainer.parallel.tensor.codes import GatheredCast
from trainwright_trainer.parallel.tensor.tokens import gather, scatter_sum, sum_gradient
from trainwright_trainer.parallel.tensor.vocabulary import rows_of, share_embedding
from trainwright_trainer.parts import Part, Parts, Slice

_CUT_DIM = {
    "embedding": 0,
    "query": 0,
    "key": 0,
    "value": 0,
    "output": 1,
    "gate": 0,
    "up": 0,
    "down": 1,
    "head": 0,
}
"""The dim along which a module's weight is cut, by the module's name."""


def cut_weights(model: nn.Module, parts: Parts, axis: Axis) -> Parts:
    """Leave ``model``, whose weights have no memory yet, this rank's part of each matrix.

    Args:
        parts: what the model holds before.

    Returns:
        What it holds now. Weights that are whole everywhere are counted on the first rank.
    """
    cut: dict[nn.Parameter, nn.Parameter] = {}  # what was one weight stays one
    held: dict[str, Part] = {}
    for name, weight in list(model.named_parameters()):
        part = parts.held[name]
        if weight.ndim == 1:
            held[name] = replace(part, counted=part.counted and axis.rank == 0)
            continue
        held[name] = replace(part, slice=_cut(part.slice, _CUT_DIM[name.split(".")[-2]], axis))
        cut[weight] = nn.Parameter(torch.empty(held[name].slice.shape, dtype=weight.dtype, device="meta"))
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            assert isinstance(module.weight, nn.Parameter)
            _take(module, cut[module.weight])
    return Parts(held, parts.order)


def share_work(model: nn.Module, vocabulary: int, axis: Axis, chunks: int = 1) -> None:
    """Let the modules of ``model``, whose weights are cut, compute on this rank's part of the tokens.

    What enters the model are all tokens of the micro batch. What leaves its last norm is this rank's part of them;
    its loss is ``vocabulary.cut_head_loss``.

    Args:
        chunks: of a rank's tokens, which travel one while another is multiplied; they divide the positions of a part.
    """
    _ = axis.group  # made at a set point: later, several threads may speak
    for module in model.modules():
        if type(module) in _CLASSES:
            module.__class__ = (_CLASSES if chunks == 1 else _CLASSES | _CHUNKED)[type(module)]
            module.axis, module.cut = axis, Cut(axis, chunks)  # type: ignore[assignment]
            _share_cast(module, axis)
        elif isinstance(module, nn.Embedding | HighEmbedding):
            share_embedding(module, vocabulary, axis)


def _share_cast(module: nn.Module, axis: Axis) -> None:
    """Let FP8 layers that read all tokens be given codes that were gathered."""
    first = module.query if isinstance(module, Attention) else getattr(module, "gate", None)
    if isinstance(first, FP8Linear):
        first.input_cast.__class__ = GatheredCast
        assert isinstance(first.input_cast, GatheredCast)
        first.input_cast.axis = axis


class _CutAttention(Attention):
    axis: Axis

    def forward(self, x_BTD: Tensor, cosines_TK: Tensor, sines_TK: Tensor) -> Tensor:
        with_whole = partial(super().forward, cosines_TK=cosines_TK, sines_TK=sines_TK)
        return scatter_sum(_gathered(x_BTD, self.axis, self.query, with_whole), self.axis)


class _CutFeedForward(FeedForward):
    axis: Axis

    def forward(self, x_BTD: Tensor) -> Tensor:
        return scatter_sum(_gathered(x_BTD, self.axis, self.gate, super().forward), self.axis)


class _ChunkedAttention(Attention):
    cut: Cut

    def forward(self, x_BTD: Tensor, cosines_TK: Tensor, sines_TK: Tensor) -> Tensor:
        q_BTF, k_BTF, v_BTF = gathered_products(x_BTD, (self.query, self.key, self.value), self.cut)
        mixed_BTF = self.mix(q_BTF, k_BTF, v_BTF, cosines_TK, sines_TK)
        return scattered_product(mixed_BTF, self.output, self.cut)


class _ChunkedFeedForward(FeedForward):
    cut: Cut

    def forward(self, x_BTD: Tensor) -> Tensor:
        gate_BTF, up_BTF = gathered_products(x_BTD, (self.gate, self.up), self.cut)
        return scattered_product(silu(gate_BTF) * up_BTF, self.down, self.cut)


def _gathered(
    part_BTD: Tensor, axis: Axis, first: nn.Module, with_whole: Callable[[Tensor], Tensor]
) -> Tensor:
    """``with_whole`` of all tokens; ``first`` is one of the layers that read them."""
    if not isinstance(first, FP8Linear):
        return with_whole(gather(part_BTD, axis))
    cast = first.input_cast
    assert isinstance(cast, GatheredCast)
    try:
        return with_whole(cast.gather(part_BTD))
    finally:  # a recomputation ends by an exception when it has all that it needs
        cast.let_go()


class _SharedNorm(nn.RMSNorm):
    axis: Axis

    def forward(self, x_BTD: Tensor) -> Tensor:
        return rms_norm(x_BTD, self.normalized_shape, sum_gradient(self.weight, self.axis), self.eps)


class _SharedHighNorm(HighNorm):
    axis: Axis

    def forward(self, x_BTD: Tensor) -> Tensor:
        return rms_norm(x_BTD, self.held.handle.shape, sum_gradient(self.weight, self.axis), self.epsilon)


_CLASSES: dict[type[nn.Module], type[nn.Module]] = {
    Attention: _CutAttention,
    FeedForward: _CutFeedForward,
    nn.RMSNorm: _SharedNorm,
    HighNorm: _SharedHighNorm,
}
_CHUNKED: dict[type[nn.Module], type[nn.Module]] = {
    Attention: _ChunkedAttention,
    FeedForward: _ChunkedFeedForward,
}


def _cut(box: Slice, dim: int, axis: Axis) -> Slice:
    first, size = rows_of(box.shape[dim], axis)
    start, shape = list(box.start), list(box.shape)
    start[dim], shape[dim] = start[dim] + first, size
    return Slice(box.whole, tuple(start), tuple(shape))


def _take(module: nn.Linear | nn.Embedding, weight: nn.Parameter) -> None:
    module.weight = weight
    if isinstance(module, nn.Embedding):
        module.num_embeddings, module.embedding_dim = weight.shape
    else:
        module.out_features, module.in_features = weight.shape
