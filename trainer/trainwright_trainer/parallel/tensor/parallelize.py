"""Tensor parallelism with sequence parallelism: each rank owns a part of every matrix and, between matmuls,
of the tokens.

    owns    heads             rows of query, key and value, columns of output
            hidden features   rows of gate and up, columns of down
            vocabulary        rows of embedding and head (``vocab_parallel``)
            tokens            a part of the residual stream (``sequence_parallel``); norms work on it, and are replicated
    moves   forward     twice per block: the normed part is all-gathered before the first matmuls, and the output of the
                        last, partial sums on each rank, is reduce-scattered
            backward    gathers and reduce-scatters swapped; the gradient of each norm's weight is all-reduced

So all arithmetic and all saved activations are divided by the number of ranks (Shoeybi et al. 2019;
Korthikanti et al. 2022). Query heads are on the same rank as the key and value heads that they share.
Before FP8 matmuls, codes are gathered (``fp8_gather``). A matmul waits for its gather, unless the tokens are
chunked (``chunked_collectives``).

There are two passes. ``shard_matrices`` shrinks weights on the meta device. ``parallelize_modules`` replaces
modules by those that call the collectives, once they have their final layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm, silu

from trainwright_trainer.distributed.axis import Axis
from trainwright_trainer.distributed.shard_spec import ShardSpec, ShardSpecs, Slice
from trainwright_trainer.fp8.compute.bf16_layers import BF16Embedding, BF16Norm
from trainwright_trainer.fp8.compute.linear import FP8Linear, InputCast
from trainwright_trainer.model.attention import Attention
from trainwright_trainer.model.feed_forward import FeedForward
from trainwright_trainer.parallel.tensor.chunked_collectives import (
    Chunking,
    all_gather_matmul,
    matmul_reduce_scatter,
)
from trainwright_trainer.parallel.tensor.fp8_gather import GatheringInputCast
from trainwright_trainer.parallel.tensor.sequence_parallel import (
    all_gather,
    all_reduce_gradient,
    reduce_scatter,
)
from trainwright_trainer.parallel.tensor.vocab_parallel import (
    VocabParallelBF16Embedding,
    VocabParallelEmbedding,
    local_range,
)
from trainwright_trainer.runtime.module_replacement import replace_modules

_SHARD_DIM = {
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
"""The dim along which a module's weight is sharded, by the module's name."""


def shard_matrices(model: nn.Module, shard_specs: ShardSpecs, axis: Axis) -> ShardSpecs:
    """Leave ``model``, which is on the meta device, this rank's part of each matrix.

    Args:
        shard_specs: what the model has so far.

    Returns:
        What it has now. Replicated weights are primary on the first rank.
    """
    shards: dict[nn.Parameter, nn.Parameter] = {}  # tied weights stay tied
    specs: dict[str, ShardSpec] = {}
    for name, weight in list(model.named_parameters()):
        part = shard_specs.local[name]
        if weight.ndim == 1:
            specs[name] = replace(part, is_primary=part.is_primary and axis.rank == 0)
            continue
        specs[name] = replace(part, slice=_shard(part.slice, _SHARD_DIM[name.split(".")[-2]], axis))
        shards[weight] = nn.Parameter(torch.empty(specs[name].slice.shape, dtype=weight.dtype, device="meta"))
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            assert isinstance(module.weight, nn.Parameter)
            _replace_weight(module, shards[module.weight])
    return ShardSpecs(specs, shard_specs.forward_order)


def parallelize_modules(model: nn.Module, vocabulary: int, axis: Axis, chunks: int = 1) -> None:
    """Let the modules of ``model``, whose weights are sharded, compute on this rank's part of the tokens.

    The model takes all tokens of the micro batch. Its last norm returns this rank's part of them;
    the loss is ``vocab_parallel.vocab_parallel_head_loss``.

    Args:
        chunks: number of chunks of a rank's tokens, sent one while another is multiplied; divides the part's
            positions.
    """
    chunking = Chunking(axis, chunks)
    replace_modules(
        model,
        {
            Attention: partial(_ParallelAttention, axis=axis)
            if chunks == 1
            else partial(_ChunkedAttention, chunking=chunking),
            FeedForward: partial(_ParallelFeedForward, axis=axis)
            if chunks == 1
            else partial(_ChunkedFeedForward, chunking=chunking),
            nn.RMSNorm: partial(_ParallelNorm, axis=axis),
            BF16Norm: partial(_ParallelBF16Norm, axis=axis),
            nn.Embedding: partial(VocabParallelEmbedding, vocabulary=vocabulary, axis=axis),
            BF16Embedding: partial(VocabParallelBF16Embedding, vocabulary=vocabulary, axis=axis),
        },
    )


def _gather_input(layers: Iterable[nn.Module], axis: Axis) -> None:
    """Let ``layers``, which read all tokens, take gathered codes if they are FP8 layers."""
    casts: dict[InputCast, GatheringInputCast] = {}
    for layer in layers:
        if isinstance(layer, FP8Linear):
            cast = layer.input_cast
            layer.input_cast = casts.setdefault(cast, GatheringInputCast(cast, axis))


class _ParallelAttention(Attention):
    def __init__(self, attention: Attention, axis: Axis) -> None:
        nn.Module.__init__(self)
        self.head_size, self.group = attention.head_size, attention.group
        self.query, self.key, self.value = attention.query, attention.key, attention.value
        self.output = attention.output
        self.axis = axis
        _gather_input((self.query, self.key, self.value), axis)

    def forward(self, x_BTD: Tensor, cosines_TK: Tensor, sines_TK: Tensor) -> Tensor:
        compute = partial(super().forward, cosines_TK=cosines_TK, sines_TK=sines_TK)
        return reduce_scatter(_with_all_tokens(x_BTD, self.axis, self.query, compute), self.axis)


class _ParallelFeedForward(FeedForward):
    def __init__(self, feed_forward: FeedForward, axis: Axis) -> None:
        nn.Module.__init__(self)
        self.gate, self.up, self.down = feed_forward.gate, feed_forward.up, feed_forward.down
        self.axis = axis
        _gather_input((self.gate, self.up), axis)

    def forward(self, x_BTD: Tensor) -> Tensor:
        return reduce_scatter(_with_all_tokens(x_BTD, self.axis, self.gate, super().forward), self.axis)


class _ChunkedAttention(_ParallelAttention):
    def __init__(self, attention: Attention, chunking: Chunking) -> None:
        super().__init__(attention, chunking.axis)
        self.chunking = chunking

    def forward(self, x_BTD: Tensor, cosines_TK: Tensor, sines_TK: Tensor) -> Tensor:
        q_BTF, k_BTF, v_BTF = all_gather_matmul(x_BTD, (self.query, self.key, self.value), self.chunking)
        mixed_BTF = self.mix(q_BTF, k_BTF, v_BTF, cosines_TK, sines_TK)
        return matmul_reduce_scatter(mixed_BTF, self.output, self.chunking)


class _ChunkedFeedForward(_ParallelFeedForward):
    def __init__(self, feed_forward: FeedForward, chunking: Chunking) -> None:
        super().__init__(feed_forward, chunking.axis)
        self.chunking = chunking

    def forward(self, x_BTD: Tensor) -> Tensor:
        gate_BTF, up_BTF = all_gather_matmul(x_BTD, (self.gate, self.up), self.chunking)
        return matmul_reduce_scatter(silu(gate_BTF) * up_BTF, self.down, self.chunking)


def _with_all_tokens(
    part_BTD: Tensor, axis: Axis, first: nn.Module, compute: Callable[[Tensor], Tensor]
) -> Tensor:
    """Apply ``compute`` to all tokens; ``first`` is one of the layers that read them."""
    if not isinstance(first, FP8Linear):
        return compute(all_gather(part_BTD, axis))
    cast = first.input_cast
    assert isinstance(cast, GatheringInputCast)
    try:
        return compute(cast.all_gather(part_BTD))
    finally:  # recomputation stops by an exception once it has all that it needs
        cast.release()


class _ParallelNorm(nn.RMSNorm):
    def __init__(self, norm: nn.RMSNorm, axis: Axis) -> None:
        super().__init__(norm.normalized_shape, norm.eps, device="meta")
        self.weight = norm.weight
        self.axis = axis

    def forward(self, x_BTD: Tensor) -> Tensor:
        return rms_norm(x_BTD, self.normalized_shape, all_reduce_gradient(self.weight, self.axis), self.eps)


class _ParallelBF16Norm(BF16Norm):
    def __init__(self, norm: BF16Norm, axis: Axis) -> None:
        super().__init__(norm.stored_weight, norm.epsilon)
        self.axis = axis

    def forward(self, x_BTD: Tensor) -> Tensor:
        return rms_norm(
            x_BTD, self.stored_weight.handle.shape, all_reduce_gradient(self.weight, self.axis), self.epsilon
        )


def _shard(box: Slice, dim: int, axis: Axis) -> Slice:
    first, size = local_range(box.shape[dim], axis)
    start, shape = list(box.offset), list(box.shape)
    start[dim], shape[dim] = start[dim] + first, size
    return Slice(box.full_shape, tuple(start), tuple(shape))


def _replace_weight(module: nn.Linear | nn.Embedding, weight: nn.Parameter) -> None:
    module.weight = weight
    if isinstance(module, nn.Embedding):
        module.num_embeddings, module.embedding_dim = weight.shape
    else:
        module.out_features, module.in_features = weight.shape
