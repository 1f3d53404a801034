"""Tensor parallelism with sequence parallelism: each rank owns a part of every matrix and, between matmuls,
of the tokens.

    owns    heads             rows of query, key and value, columns of output
            hidden features   rows of gate and up, columns of down
            vocabulary        rows of embedding and head (``vocab_parallel``); learned positions are replicated
            tokens            a part of the residual stream (``sequence_parallel``); norms work on it, and are replicated
    moves   forward     twice per block: the normed part is all-gathered before the first matmuls, and the output of the
                        last, partial sums on each rank, is reduce-scattered
            backward    gathers and reduce-scatters swapped
            step        the gradients of all norms' weights are all-reduced together (``replicated_weights``)
            In a parallel block once instead of twice: both parts read one input, and their outputs are summed before.

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

from trainwright.contracts.block_parts import weight_in_block
from trainwright_trainer.distributed.axis import Axis
from trainwright_trainer.distributed.shard_spec import ShardSpec, ShardSpecs, Slice
from trainwright_trainer.fp8.compute.bf16_layers import (
    BF16Embedding,
    BF16PositionEmbedding,
)
from trainwright_trainer.fp8.compute.linear import FP8Linear, InputCast
from trainwright_trainer.linear.position_embedding import PositionEmbedding
from trainwright_trainer.model.attention import Attention, AttentionTables, only_projects
from trainwright_trainer.model.attention_registry import ATTENTION_MODULES
from trainwright_trainer.model.feed_forward import FeedForward
from trainwright_trainer.model.partial_sum import PartialSum
from trainwright_trainer.model.transformer import ParallelBlock
from trainwright_trainer.parallel.tensor.chunked_collectives import (
    Chunking,
    all_gather_matmul,
    matmul_reduce_scatter,
    matmuls_reduce_scatter,
)
from trainwright_trainer.parallel.tensor.fp8_gather import GatheringInputCast
from trainwright_trainer.parallel.tensor.sequence_parallel import (
    all_gather,
    all_reduce,
    own_part,
    reduce_scatter,
)
from trainwright_trainer.parallel.tensor.vocab_parallel import (
    VocabParallelBF16Embedding,
    VocabParallelEmbedding,
    local_range,
)
from trainwright_trainer.runtime.module_replacement import Replacements, recreate, replace_modules

_OUTER_SHARD_DIM = {
    "embedding.weight": 0,
    "position_embedding.weight": None,
    "head.weight": 0,
    "norm.weight": None,
    "norm.shift.weight": None,
}
"""The dim along which a weight outside of blocks is sharded; None if ranks replicate it."""


def shard_matrices(model: nn.Module, shard_specs: ShardSpecs, axis: Axis) -> ShardSpecs:
    """Reduce ``model``, which is on the meta device, to this rank's part of each matrix.

    Args:
        shard_specs: those of the model before this pass.

    Returns:
        Those after it. Replicated weights are primary on the first rank.
    """
    shards: dict[nn.Parameter, nn.Parameter] = {}  # tied weights stay tied
    specs: dict[str, ShardSpec] = {}
    for name, weight in list(model.named_parameters()):
        part = shard_specs.local[name]
        dim = _shard_dim(name)
        if dim is None:
            is_primary = part.is_primary and axis.rank == 0
            specs[name] = replace(part, is_primary=is_primary, has_partial_gradient=True)
            continue
        specs[name] = replace(part, slice=_shard(part.slice, dim, axis))
        shards[weight] = nn.Parameter(torch.empty(specs[name].slice.shape, dtype=weight.dtype, device="meta"))
    for module in model.modules():
        for name, weight in list(module.named_parameters(recurse=False)):
            if weight in shards:
                _replace_weight(module, name, shards[weight])
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
    one_input = {path for path, module in model.named_modules() if type(module) is ParallelBlock}
    replace_modules(model, {ParallelBlock: partial(_parallel_block, chunking=chunking)})
    replace_modules(
        model,
        {
            **_parallel_attentions(chunking),
            PartialSum: partial(_sum_terms, axis=axis),
            FeedForward: partial(_parallel_feed_forward, chunking=chunking),
        },
        lambda path: path.rpartition(".")[0] not in one_input,
    )
    replace_modules(
        model,
        {
            nn.Embedding: partial(VocabParallelEmbedding, vocabulary=vocabulary, axis=axis),
            BF16Embedding: partial(VocabParallelBF16Embedding, vocabulary=vocabulary, axis=axis),
            PositionEmbedding: partial(_own_positions, into=_OwnPositionEmbedding, axis=axis),
            BF16PositionEmbedding: partial(_own_positions, into=_OwnBF16PositionEmbedding, axis=axis),
        },
    )


def _gather_input(layers: Iterable[nn.Module], axis: Axis) -> None:
    """Let ``layers``, which read all tokens, take gathered codes if they are FP8 layers."""
    casts: dict[InputCast, GatheringInputCast] = {}
    for layer in layers:
        if isinstance(layer, FP8Linear):
            cast = layer.input_cast
            layer.input_cast = casts.setdefault(cast, GatheringInputCast(cast, axis))


def _parallel_attentions(chunking: Chunking) -> Replacements:
    """The replacement of each variant of attention: a separate class, which computes the same between collectives."""
    parallel = _ParallelAttention if chunking.chunks == 1 else _ChunkedAttention
    return {
        variant: partial(
            _parallel_attention,
            into=type(f"{parallel.__name__}Of{variant.__name__}", (parallel, variant), {}),
            chunking=chunking,
        )
        for variant in ATTENTION_MODULES.values()
    }


def _parallel_attention(
    attention: Attention, into: type[_ParallelAttention], chunking: Chunking
) -> _ParallelAttention:
    if chunking.chunks > 1:
        _check_chunkable(attention)
    made = recreate(attention, into)
    made.chunking = chunking
    if only_projects(type(attention)):
        _gather_input(made.first_layers, chunking.axis)
    return made


def _check_chunkable(attention: Attention) -> None:
    if not only_projects(type(attention)):
        raise TypeError(f"{type(attention).__name__} overrides forward: its input cannot arrive in chunks")


def _sum_terms(partial_sum: PartialSum, axis: Axis) -> _RanksSum:
    made = recreate(partial_sum, _RanksSum)
    made.axis = axis
    return made


class _RanksSum(PartialSum):
    """The sum of the terms of all ranks, which all of them get."""

    axis: Axis

    def forward(self, terms: Tensor) -> Tensor:
        return all_reduce(terms, self.axis)


class _OwnPositions(nn.Module):
    """Looks up the positions of this rank's tokens."""

    axis: Axis

    def forward(self, positions_BT: Tensor) -> Tensor:
        """(B, T) → (B, T/t, D)."""
        found_BTD: Tensor = super().forward(own_part(positions_BT, self.axis))
        return found_BTD


class _OwnPositionEmbedding(_OwnPositions, PositionEmbedding):
    pass


class _OwnBF16PositionEmbedding(_OwnPositions, BF16PositionEmbedding):
    pass


def _own_positions(module: nn.Module, into: type[_OwnPositions], axis: Axis) -> _OwnPositions:
    made = recreate(module, into)
    made.axis = axis
    return made


class _ParallelAttention(Attention):
    """The base, besides its variant, of an attention that computes some of the heads."""

    chunking: Chunking

    def forward(self, x_BTD: Tensor, tables: AttentionTables) -> Tensor:
        compute = partial(super().forward, tables=tables)
        axis = self.chunking.axis
        return reduce_scatter(_with_all_tokens(x_BTD, axis, self.query, compute), axis)


def _parallel_feed_forward(feed_forward: FeedForward, chunking: Chunking) -> _ParallelFeedForward:
    made = recreate(feed_forward, _ParallelFeedForward if chunking.chunks == 1 else _ChunkedFeedForward)
    made.chunking = chunking
    _gather_input(made.first_layers, chunking.axis)
    return made


class _ParallelFeedForward(FeedForward):
    chunking: Chunking

    def forward(self, x_BTD: Tensor) -> Tensor:
        axis = self.chunking.axis
        return reduce_scatter(_with_all_tokens(x_BTD, axis, self.up, super().forward), axis)


class _ChunkedAttention(_ParallelAttention):
    """``_ParallelAttention`` whose tokens are sent in chunks."""

    def forward(self, x_BTD: Tensor, tables: AttentionTables) -> Tensor:
        mixed_BTF = self.mix(tables, *all_gather_matmul(x_BTD, self.first_layers, self.chunking))
        return matmul_reduce_scatter(mixed_BTF, self.output, self.chunking)


class _ChunkedFeedForward(_ParallelFeedForward):
    """``_ParallelFeedForward`` whose tokens are sent in chunks."""

    def forward(self, x_BTD: Tensor) -> Tensor:
        hidden_BTF = self.hidden(*all_gather_matmul(x_BTD, self.first_layers, self.chunking))
        return matmul_reduce_scatter(hidden_BTF, self.down, self.chunking)


def _parallel_block(block: ParallelBlock, chunking: Chunking) -> _ShardedParallelBlock:
    if chunking.chunks > 1:
        _check_chunkable(block.attention)
    made = recreate(block, _ShardedParallelBlock if chunking.chunks == 1 else _ChunkedParallelBlock)
    made.chunking = chunking
    if only_projects(type(block.attention)):
        _gather_input(made.first_layers, chunking.axis)
    return made


class _ShardedParallelBlock(ParallelBlock):
    """A parallel block gathers its one input, and reduce-scatters the sum of both parts' results. It sends half as many
    bytes as a serial block.
    """

    chunking: Chunking

    @property
    def first_layers(self) -> list[nn.Module]:
        return [*self.attention.first_layers, *self.feed_forward.first_layers]

    def both(self, normed_BTD: Tensor, tables: AttentionTables) -> Tensor:
        compute = partial(super().both, tables=tables)
        axis = self.chunking.axis
        return reduce_scatter(_with_all_tokens(normed_BTD, axis, self.attention.query, compute), axis)


class _ChunkedParallelBlock(_ShardedParallelBlock):
    """``_ShardedParallelBlock`` whose tokens are sent in chunks."""

    def both(self, normed_BTD: Tensor, tables: AttentionTables) -> Tensor:
        projections_BTF = all_gather_matmul(normed_BTD, self.first_layers, self.chunking)
        count = len(self.attention.first_names)
        mixed_BTF = self.attention.mix(tables, *projections_BTF[:count])
        hidden_BTF = self.feed_forward.hidden(*projections_BTF[count:])
        layers = [self.attention.output, self.feed_forward.down]
        return matmuls_reduce_scatter([mixed_BTF, hidden_BTF], layers, self.chunking)


def _with_all_tokens(
    part_BTD: Tensor, axis: Axis, first: nn.Module, compute: Callable[[Tensor], Tensor]
) -> Tensor:
    """Apply ``compute`` to all tokens; ``first`` is one of the layers that read them."""
    cast = first.input_cast if isinstance(first, FP8Linear) else None
    if not isinstance(cast, GatheringInputCast):
        return compute(all_gather(part_BTD, axis))
    try:
        return compute(cast.all_gather(part_BTD))
    finally:  # recomputation stops by an exception once it has all that it needs
        cast.release()


def _shard(box: Slice, dim: int, axis: Axis) -> Slice:
    first, size = local_range(box.shape[dim], axis)
    start, shape = list(box.offset), list(box.shape)
    start[dim], shape[dim] = start[dim] + first, size
    return Slice(box.full_shape, tuple(start), tuple(shape))


def _shard_dim(name: str) -> int | None:
    weight = weight_in_block(name)
    return _OUTER_SHARD_DIM[name] if weight is None else weight.shard_dim


def _replace_weight(module: nn.Module, name: str, weight: nn.Parameter) -> None:
    setattr(module, name, weight)
    if isinstance(module, nn.Embedding):
        module.num_embeddings, module.embedding_dim = weight.shape
    elif isinstance(module, nn.Linear):
        module.out_features, module.in_features = weight.shape
